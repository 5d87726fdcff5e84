"""The result store: measurements, appended and never changed.

SQLite by default, in write-ahead mode so that a reader never waits and a killed writer leaves the last committed state;
any other database by its SQLAlchemy URL. A measurement is stored under its id, a digest of its content, so storing it
twice adds nothing.

Version history of the schema:
    1  first
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.base import files
from deploykit.base.errors import DeploykitError, MissingExtraError, UsageError
from deploykit.base.home import store_url
from deploykit.results.measurement import Measurement

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table

SCHEMA_VERSION = 1
_SQLITE_PATIENCE_S = 30
_LATEST = re.compile(r"latest(?:~(?P<back>[0-9]{1,6}))?$")
"""Ids are hexadecimal: none begins like this."""
_LOCK_NUMBER = 0x6465706C6F79
"""Of the advisory lock that whoever makes the tables holds: "deploy" in ASCII."""


class StoreError(DeploykitError):
    """The store cannot be reached or is not one."""


class Store:
    """Measurements of one database. A context manager: leaving it closes the connections.

    Args:
        url: SQLAlchemy URL; None: `DEPLOYKIT_STORE`, else an SQLite file in `.deploykit`.

    Raises:
        UsageError: No such URL scheme.
        MissingExtraError: The database needs a driver that is not installed.
        StoreError: It cannot be opened, or was written by a newer deploykit.
    """

    def __init__(self, url: str | None = None) -> None:
        self._engine = _engine(url or store_url())
        self._table, self._meta = _tables()
        with self._errors():
            self._prepare()

    def append(self, measurements: Sequence[Measurement]) -> int:
        """Store measurements, all or none.

        Returns:
            How many were new.
        """
        # RETURNING yields a row only where one was inserted; not every driver counts rows.
        insert = self._insert_if_new(self._table).returning(self._table.c.id)
        with self._errors(), self._engine.begin() as connection:
            return sum(connection.execute(insert.values(**_row(m))).first() is not None for m in measurements)

    def measurements(
        self,
        *,
        model: str | None = None,
        target: str | None = None,
        precision: str | None = None,
        scenario: str | None = None,
        valid: bool | None = None,
        limit: int | None = None,
    ) -> list[Measurement]:
        """Stored measurements that fit, newest first."""
        from sqlalchemy import select

        wanted = {"model": model, "target": target, "precision": precision, "scenario": scenario, "valid": valid}
        query = select(self._table.c.document).order_by(self._table.c.date.desc(), self._table.c.id)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(self._table.c[column] == value)
        with self._errors(), self._engine.connect() as connection:
            documents = connection.execute(query.limit(limit)).scalars().all()
        return [_measurement(document) for document in documents]

    def find(self, id_or_prefix: str) -> Measurement:
        """The measurement of an id or the first characters of one; `latest`, and `latest~1` before it, as in git.

        Raises:
            UsageError: None, or several.
        """
        from sqlalchemy import select

        if (back := _LATEST.match(id_or_prefix)) is not None:
            return self._latest(int(back["back"] or 0))
        escaped = id_or_prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        query = select(self._table.c.document).where(self._table.c.id.like(f"{escaped}%", escape="\\")).limit(2)
        with self._errors(), self._engine.connect() as connection:
            found = connection.execute(query).scalars().all()
        if len(found) != 1:
            what = "no measurement has" if not found else "several measurements have"
            raise UsageError(f"{what} the id {id_or_prefix!r}; list them: deploykit results list")
        return _measurement(found[0])

    def _latest(self, back: int) -> Measurement:
        newest = self.measurements(limit=back + 1)
        if len(newest) <= back:
            raise UsageError(f"the store holds {len(newest)} measurements: there is no latest~{back}")
        return newest[back]

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Make the tables where they are missing; refuse a schema that this version does not know."""
        found = self._schema_version()
        if found is None:
            self._make_tables()
            found = self._schema_version()
        if found != SCHEMA_VERSION:
            raise StoreError(f"the store has schema {found}, this deploykit knows {SCHEMA_VERSION}: update deploykit")

    def _schema_version(self) -> int | None:
        from sqlalchemy import inspect, select

        if not inspect(self._engine).has_table(self._meta.name):
            return None
        with self._engine.connect() as connection:
            return connection.execute(select(self._meta.c.schema_version)).scalars().first()

    def _make_tables(self) -> None:
        """Each statement is harmless when another process has just done the same."""
        from sqlalchemy import text
        from sqlalchemy.schema import CreateIndex, CreateTable

        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                # CREATE TABLE IF NOT EXISTS still fails there when two sessions run it at the same moment.
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"))
            for table in (self._table, self._meta):
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in sorted(table.indexes, key=lambda index: str(index.name)):
                    connection.execute(CreateIndex(index, if_not_exists=True))
            connection.execute(self._insert_if_new(self._meta).values(id=1, schema_version=SCHEMA_VERSION))

    def _insert_if_new(self, table: Table) -> Any:
        """An insert that leaves a row of the same key alone, whoever wrote it."""
        from sqlalchemy.dialects import postgresql, sqlite

        dialect = sqlite if self._engine.dialect.name == "sqlite" else postgresql
        return dialect.insert(table).on_conflict_do_nothing()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Database errors in plain words; the URL without its password."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            where = self._engine.url.render_as_string(hide_password=True)
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise StoreError(f"the result store {where} cannot be used: {reason}") from error


def measurement_id(document: dict[str, Any]) -> str:
    """The id of a record: a digest over its content, whatever id it carries."""
    return files.sha256_json({key: value for key, value in document.items() if key != "id"})[:32]


def stored(url: str | None = None, **wanted: Any) -> list[Measurement]:
    """As `Store.measurements`, with its arguments; empty where there is no store yet, and none is made by asking."""
    if not exists(url):
        return []
    with Store(url) as store:
        return store.measurements(**wanted)


def exists(url: str | None = None) -> bool:
    """Whether a store is there to be read; a database server is taken to be."""
    path = _sqlite_path(url or store_url())
    return path is None or path.is_file()


def _sqlite_path(url: str) -> Path | None:
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def _engine(url: str) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise NoSuchModuleError(parsed.drivername)
        # `postgresql://` means the driver of the extra, not the older one that SQLAlchemy would look for.
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        path = _sqlite_path(url)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        arguments = {"timeout": _SQLITE_PATIENCE_S} if parsed.get_backend_name() == "sqlite" else {}
        engine = create_engine(parsed, connect_args=arguments)
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(
            "DEPLOYKIT_STORE is not the URL of a database that deploykit keeps results in; give sqlite:///FILE or "
            "postgresql://USER@HOST/DATABASE"
        ) from error
    except ImportError as error:
        raise MissingExtraError(str(error.name), "postgres", "this result store") from error
    except OSError as error:
        raise StoreError(f"the folder of the result store cannot be made: {error}") from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # Every commit reaches the disk before it is reported: a record of a long run is worth one fsync.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _tables() -> tuple[Table, Table]:
    from sqlalchemy import Boolean, Column, Integer, MetaData, String, Table, Text

    metadata = MetaData()
    measurements = Table(
        "measurements",
        metadata,
        Column("id", String(64), primary_key=True),
        Column("model", String, nullable=False, index=True),
        Column("target", String, nullable=False, index=True),
        Column("precision", String),
        Column("scenario", String, nullable=False),
        Column("valid", Boolean, nullable=False),
        Column("provenance", String, nullable=False),
        # ISO 8601 in UTC, which sorts as text in every database.
        Column("date", String, nullable=False, index=True),
        Column("document", Text, nullable=False),
    )
    meta = Table(
        "deploykit_store", metadata, Column("id", Integer, primary_key=True), Column("schema_version", Integer)
    )
    return measurements, meta


def _utc(date: dt.datetime | None) -> str:
    """A date that sorts as text; one without a zone is taken to be in UTC, none sorts last."""
    if date is None:
        return ""
    aware = date if date.tzinfo else date.replace(tzinfo=dt.timezone.utc)
    return aware.astimezone(dt.timezone.utc).isoformat(timespec="microseconds")


def _measurement(document: str) -> Measurement:
    from pydantic import ValidationError

    try:
        return Measurement.model_validate_json(document)
    except ValidationError as error:
        known = json.loads(document)
        raise StoreError(
            f"record {known.get('id')} of the result store is not of a form that this deploykit reads "
            f"({error.errors()[0]['msg']}): it was written by another version, update deploykit"
        ) from error


def _row(measurement: Measurement) -> dict[str, Any]:
    document = measurement.model_dump(mode="json")
    columns = ("id", "model", "target", "precision", "scenario", "valid", "provenance")
    return {
        **{column: document[column] for column in columns},
        "date": _utc(measurement.date),
        "document": json.dumps(document, ensure_ascii=False, allow_nan=False),
    }
