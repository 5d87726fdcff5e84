"""Reading a target file: one YAML mapping, and errors that name the file, the field and the value."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from deploykit.base.errors import UsageError, near_misses
from deploykit.targets.spec import FORMAT_VERSION, TargetFile, field_names

# The C parser reads the whole catalogue several times faster; wheels of PyYAML carry it, some builds do not.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHOWN_CHARACTERS = 60


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Safe loading that refuses a key given twice: YAML would keep the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        # Before merge keys (`<<`) are unfolded: what a mapping overrides of them is no repetition.
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml.constructor.ConstructorError(None, None, f"key {twice!r} is given twice", node.start_mark)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_target_file(path: Path) -> TargetFile:
    """Read one target file.

    Raises:
        UsageError: The file, the field, its value and what is wrong with it.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_Loader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"target file {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise UsageError(f"target file {path} holds no mapping of fields to values (`device: my-card` and so on)")
    if document.get("version") != FORMAT_VERSION:
        raise UsageError(
            f"target file {path}: field 'version' is {document.get('version')!r}, this deploykit reads {FORMAT_VERSION}"
        )
    try:
        return TargetFile.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"target file {path}: {_first_fault(error)}") from error


def is_target_file(path: Path) -> bool:
    """Whether somebody meant it as a target file: other tools keep YAML in folders called `targets` too.

    It has `device:` and one of the other fields of a target file at the left margin; `device: cuda` alone, as in a
    training configuration, is somebody else's.
    """
    try:
        keys = set(re.findall(r"^([a-z_]+):", path.read_text(encoding="utf-8-sig"), re.MULTILINE))
    except (OSError, UnicodeDecodeError):
        return False
    return "device" in keys and bool(keys & {"silicon", "memory", "power", "sources"})


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        near = near_misses(str(fault["loc"][-1]), field_names())
        return f"unknown field {where!r}" + (f"; did you mean {', '.join(near)}?" if near else "")
    if fault["type"] == "missing":
        return f"field {where!r} is missing"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"field {where!r} is {_shown(fault['input'])}: {message}" if where else message


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
