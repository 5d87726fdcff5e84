"""The catalogue: what came with deploykit, what the user keeps in `./targets`, and single files by path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from deploykit.base.data import data_folder
from deploykit.base.errors import UnknownNameError, UsageError, near_misses
from deploykit.targets.host import HOST, host_target
from deploykit.targets.ref import TargetRef, parse_ref, squeezed
from deploykit.targets.resolve import at_point, points_of
from deploykit.targets.spec import FORMAT_VERSION, TargetFile, TargetSpec, field_names

LIST_HINT = "list them all: deploykit targets list"
USER_FOLDER = "targets"

# The C loader reads the whole catalogue several times faster; wheels of PyYAML carry it, some builds do not.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_target_file(path: Path) -> TargetFile:
    """Read one target file.

    Raises:
        UsageError: The file, the field and what is wrong with it.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - it is a safe loader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"target file {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise UsageError(f"target file {path} holds no mapping; see the files of `deploykit targets show --help`")
    if document.get("version") != FORMAT_VERSION:
        raise UsageError(f"target file {path}: version is {document.get('version')!r}, this deploykit reads 1")
    try:
        return TargetFile.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"target file {path}: {_first_fault(error)}") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] != "extra_forbidden":
        return f"field {where!r}: {fault['msg']}" if where else str(fault["msg"])
    near = near_misses(str(fault["loc"][-1]), field_names())
    guess = f"; did you mean {', '.join(near)}?" if near else ""
    return f"unknown field {where!r}{guess}"


@dataclass(frozen=True)
class Catalog:
    """Every device that a reference can name.

    Attributes:
        files: Slug → description.
    """

    files: dict[str, TargetFile]

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Other name → canonical reference."""
        return {alias: ref for file in self.files.values() for alias, ref in file.aliases.items()}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Squeezed spelling → slug. A device's own slug wins over another's spelling."""
        found: dict[str, str] = {}
        for slug, file in self.files.items():
            for spelling in (file.name, *file.spellings):
                found.setdefault(squeezed(spelling), slug)
        bare = {squeezed(alias): ref for alias, ref in self.aliases.items() if ref in self.files}
        return found | bare | {squeezed(slug): slug for slug in self.files}

    def names(self) -> list[str]:
        """Every slug and alias."""
        return [*self.files, *self.aliases]

    def device_slug(self, spelling: str) -> str:
        """The slug of a device as some table writes it.

        Raises:
            UnknownNameError: No device is written like that.
        """
        slug = self._spellings.get(squeezed(spelling))
        if slug is None:
            raise UnknownNameError("device", spelling, self.names(), LIST_HINT)
        return slug

    def resolve(self, text: str) -> TargetSpec:
        """What a reference or alias names, with the figures that hold there.

        A Jetson without `@` is in its default mode, and the canonical reference says so.

        Raises:
            UnknownNameError: No such device, mode or profile; carries the near misses.
            UsageError: Not of the grammar, or a mode or profile on a device that has none.
        """
        ref = self._canonical(parse_ref(text), text)
        return at_point(self.files[ref.device], ref)

    def _canonical(self, ref: TargetRef, text: str) -> TargetRef:
        if ref.device in self.files:
            return ref
        if ref.device in self.aliases:
            meant = parse_ref(self.aliases[ref.device])
            return _joined(meant, ref, text)
        slug = self._spellings.get(squeezed(ref.device))
        if slug is None:
            raise UnknownNameError("target", text, self.names(), LIST_HINT)
        return TargetRef(slug, ref.mode, ref.profile)

    def points(self) -> Iterator[TargetSpec]:
        """Every operating point: each power mode of a Jetson, each card whole and as each MIG profile."""
        for file in self.files.values():
            yield from points_of(file)


def _joined(meant: TargetRef, ref: TargetRef, text: str) -> TargetRef:
    """An alias with a mode or profile of its own takes no other."""
    for own, given in ((meant.mode, ref.mode), (meant.profile, ref.profile)):
        if own and given and own != given:
            raise UsageError(f"target {text!r}: {ref.device!r} already means {meant}")
    return TargetRef(meant.device, meant.mode or ref.mode, meant.profile or ref.profile)


@lru_cache(maxsize=4)
def load_catalog(user_folder: Path = Path(USER_FOLDER)) -> Catalog:
    """The packaged catalogue, `host`, and the user's own files, which win over packaged ones of the same slug.

    Args:
        user_folder: Where the user's files are; one that is not there, or holds other YAML, is passed over.

    Raises:
        UsageError: One of the user's target files is wrong.
    """
    packaged = [read_target_file(path) for path in sorted(data_folder("targets").glob("*.yaml"))]
    own = [read_target_file(path) for path in sorted(user_folder.glob("*.yaml")) if _is_target_file(path)]
    host = host_target()
    return Catalog({HOST: host} | {file.device: file for file in (*packaged, *own)})


def _is_target_file(path: Path) -> bool:
    """Whether somebody meant it as one: other tools keep YAML in folders of this name too."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.startswith("device:") for line in lines)


def resolve(text: str) -> TargetSpec:
    """A reference, an alias, or the path of a target file (with `@mode` or `:profile` behind it, where wanted).

    Raises:
        UsageError: As `Catalog.resolve` and `read_target_file`.
    """
    path, suffix = _split_path(text)
    if path is None:
        return load_catalog().resolve(text)
    file = read_target_file(path)
    return Catalog({file.device: file}).resolve(file.device + suffix)


def _split_path(text: str) -> tuple[Path | None, str]:
    """`./my-card.yaml:1g.5gb` → the path and what is behind it; None where the text is no path."""
    for ending in (".yaml", ".yml"):
        head, found, tail = text.partition(ending)
        if found and (not tail or tail[0] in "@:"):
            return Path(head + ending), tail
    return None, ""
