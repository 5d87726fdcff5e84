"""The catalogue: what came with deploykit, what the user keeps in `./targets`, and single files by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from deploykit.base.data import data_folder
from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.targets.host import HOST, host_target
from deploykit.targets.ref import TargetRef, parse_ref, squeezed
from deploykit.targets.resolve import at_point, points_of
from deploykit.targets.spec import TargetFile, TargetSpec
from deploykit.targets.target_file import is_target_file, read_target_file

LIST_HINT = "list them all: deploykit targets list"
USER_FOLDER = "targets"


@dataclass(frozen=True)
class Catalog:
    """Every device that a reference can name.

    Attributes:
        files: Slug → description.
    """

    files: dict[str, TargetFile]

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Other name → reference. The file read last has a name that two claim: the user's."""
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
        """Every slug, alias and canonical reference."""
        refs = [point.ref for point in self.all_points() if point.ref not in self.files]
        return [*self.files, *self.aliases, *refs]

    def device_slug(self, spelling: str) -> str:
        """The slug of a device as some table, price list or person writes it.

        Raises:
            UnknownNameError: No device is written like that.
        """
        slug = self._spellings.get(squeezed(spelling))
        if slug is None:
            raise UnknownNameError("device", spelling, [*self.files, *self.aliases], LIST_HINT)
        return slug

    def resolve(self, text: str) -> TargetSpec:
        """What a reference or alias names, with the figures that hold there.

        A Jetson without `@` is in its default mode, and the canonical reference says so.

        Raises:
            UnknownNameError: No such device, mode or profile; carries the near misses.
            UsageError: Not of the grammar, or a mode or profile on a device that has none.
        """
        ref = self._canonical(parse_ref(text), text)
        file = self.files[ref.device]
        if ref.profile is not None and not file.mig_profiles:
            cards = ", ".join(slug for slug, other in self.files.items() if other.mig_profiles)
            raise UsageError(
                f"target {text!r}: {file.device} has no MIG profiles, leave ':{ref.profile}' out; "
                + (f"cards with MIG profiles: {cards}" if cards else "no card here has any")
            )
        return at_point(file, ref)

    def _canonical(self, ref: TargetRef, text: str) -> TargetRef:
        if ref.device in self.files:
            return ref
        if ref.device in self.aliases:
            return _joined(parse_ref(self.aliases[ref.device]), ref, text)
        slug = self._spellings.get(squeezed(ref.device))
        if slug is None:
            raise UnknownNameError("target", text, self.names(), LIST_HINT)
        return TargetRef(slug, ref.mode, ref.profile)

    def all_points(self) -> Iterator[TargetSpec]:
        """Every operating point: each power mode of a Jetson, each card whole and as each useful MIG profile."""
        for file in self.files.values():
            yield from points_of(file)


def _joined(meant: TargetRef, ref: TargetRef, text: str) -> TargetRef:
    """An alias with a mode or profile of its own takes no other."""
    for own, given in ((meant.mode, ref.mode), (meant.profile, ref.profile)):
        if own and given and own != given:
            raise UsageError(f"target {text!r}: {ref.device!r} already means {meant}")
    return TargetRef(meant.device, meant.mode or ref.mode, meant.profile or ref.profile)


def load_catalog(extra_folders: Sequence[Path] = ()) -> Catalog:
    """The packaged catalogue, `host`, and the user's own files, which win over packaged ones of the same slug.

    Args:
        extra_folders: Folders read after `./targets`, the later the stronger. A folder that is not there is passed
            over, and so is a YAML file that is no target file (see `is_target_file`).

    Raises:
        UsageError: One of the user's target files is wrong.
    """
    files = dict(_packaged())
    for folder in (Path(USER_FOLDER), *extra_folders):
        if folder.is_dir() and not folder.samefile(data_folder("targets")):
            own = _own_files(folder)
            # Last in line, so that an alias that two files claim is the user's.
            files = {slug: file for slug, file in files.items() if slug not in own} | own
    return Catalog(files)


@lru_cache(maxsize=1)
def _packaged() -> dict[str, TargetFile]:
    """What came with deploykit does not change while it runs; a user's files may."""
    host = host_target()
    read = [read_target_file(path) for path in sorted(data_folder("targets").glob("*.yaml"))]
    return {HOST: host} | {file.device: file for file in read}


def _own_files(folder: Path) -> dict[str, TargetFile]:
    found: dict[str, TargetFile] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        if is_target_file(path):
            file = _own_file(path)
            if file.device in found:
                raise UsageError(f"target file {path}: another file in {folder} describes {file.device!r} too")
            found[file.device] = file
    return found


def _own_file(path: Path) -> TargetFile:
    file = read_target_file(path)
    if file.device == HOST:
        raise UsageError(f"target file {path}: {HOST!r} is the machine at hand; give the device another name")
    return file


def resolve(text: str) -> TargetSpec:
    """A reference, an alias, or the path of a target file (with `@mode` or `:profile` behind it, where wanted).

    Raises:
        UsageError: As `Catalog.resolve` and `read_target_file`.
    """
    path, suffix = _split_path(text)
    if path is None:
        return load_catalog().resolve(text)
    file = _own_file(path)
    return Catalog({file.device: file}).resolve(file.device + suffix)


def _split_path(text: str) -> tuple[Path | None, str]:
    """`./my-card.yaml:1g.5gb` → the path and what is behind it; None where the text is no path."""
    for ending in (".yaml", ".yml"):
        head, found, tail = text.rpartition(ending)
        if found and (not tail or tail[0] in "@:"):
            return Path(head + ending), tail
    return None, ""
