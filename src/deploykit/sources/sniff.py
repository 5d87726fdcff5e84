"""What a file really is, read from its bytes without running anything in it."""

from __future__ import annotations

import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

Kind = Literal[
    "empty file",
    "HTML page",
    "Git LFS pointer",
    "text file",
    "safetensors file",
    "state dict",
    "pickle with code",
    "TorchScript archive",
    "exported program",
    "zip archive",
    "damaged archive",
    "Keras HDF5 file",
    "TensorFlow Lite file",
    "GGUF file",
    "binary file",
]

_HEAD_BYTES = 4096

# What torch.save writes for a dict of tensors, and nothing else: containers, tensor rebuilding, storage types.
_TENSOR_GLOBALS = ("collections.OrderedDict", "torch._utils.", "torch.serialization.", "torch.Size", "torch.device")


@dataclass(frozen=True)
class Sniffed:
    """A file's kind, and for a pickle the names it would import when loaded."""

    kind: Kind
    imports: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """The kind with its article: `an HTML page`."""
        return f"{'an' if self.kind[0].lower() in 'aeio' or self.kind[0] == 'H' else 'a'} {self.kind}"


def sniff(path: Path) -> Sniffed:
    """Tell what a file is. ONNX has no magic bytes: it comes out as `binary file`."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        stream.seek(0)
        if head.startswith(b"PK\x03\x04"):
            return _sniff_archive(stream)
        if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            return _sniff_pickle(stream)
    return Sniffed(_kind_of_head(head, path.stat().st_size))


def _kind_of_head(head: bytes, size_bytes: int) -> Kind:
    if not head:
        return "empty file"
    if head.startswith(b"\x89HDF"):
        return "Keras HDF5 file"
    if head.startswith(b"GGUF"):
        return "GGUF file"
    if head[4:8] == b"TFL3":
        return "TensorFlow Lite file"
    if _is_safetensors(head, size_bytes):
        return "safetensors file"
    return _kind_of_text(head)


def _kind_of_text(head: bytes) -> Kind:
    try:
        text = head.decode("utf-8", errors="strict" if len(head) < _HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        return "binary file"
    if any(ord(c) < 32 and c not in "\t\n\r\f" for c in text):
        return "binary file"
    start = text.lstrip("\ufeff \t\r\n").lower()
    if start.startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        return "HTML page"
    return "Git LFS pointer" if start.startswith("version https://git-lfs") else "text file"


def _is_safetensors(head: bytes, size_bytes: int) -> bool:
    """Eight bytes of header length, then a JSON object."""
    return len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size_bytes - 8


def _sniff_archive(stream: IO[bytes]) -> Sniffed:
    try:
        with zipfile.ZipFile(stream) as archive:
            names = archive.namelist()
            tails = {name.partition("/")[2] for name in names}
            if "constants.pkl" in tails and any(tail.startswith("code/") for tail in tails):
                return Sniffed("TorchScript archive")
            if {"archive_format", "serialized_exported_program.json"} & (tails | set(names)):
                return Sniffed("exported program")
            pickles = [name for name in names if name.endswith("data.pkl")]
            if not pickles:
                return Sniffed("zip archive")
            with archive.open(pickles[0]) as pickle:
                return _sniff_pickle(pickle)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError):
        return Sniffed("damaged archive")


def _sniff_pickle(stream: IO[bytes]) -> Sniffed:
    try:
        imports = _imports_of(stream)
    except (ValueError, EOFError, IndexError, UnicodeDecodeError):
        return Sniffed("damaged archive")
    foreign = tuple(name for name in imports if not _only_rebuilds_tensors(name))
    return Sniffed("pickle with code", foreign) if foreign else Sniffed("state dict", imports)


def _imports_of(stream: IO[bytes]) -> tuple[str, ...]:
    """Every `module.name` that unpickling would import, read from the opcodes without running them."""
    found: dict[str, None] = {}
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "GLOBAL":
            found[str(argument).replace(" ", ".")] = None
        elif opcode.name == "STACK_GLOBAL":
            found[".".join(strings[-2:])] = None
        elif isinstance(argument, str):
            strings.append(argument)
    return tuple(found)


def _only_rebuilds_tensors(name: str) -> bool:
    is_storage = name.startswith("torch.") and name.endswith(("Storage", "Parameter"))
    is_dtype = name.startswith("torch.") and name.count(".") == 1 and name[6:].rstrip("0123456789").islower()
    return is_storage or is_dtype or name.startswith(_TENSOR_GLOBALS) or name == "_codecs.encode"
