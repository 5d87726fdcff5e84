"""A set of inputs, one sample at a time: what every kind of calibration data becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deploykit.base.errors import UsageError

Feeds = dict[str, "np.ndarray[Any, Any]"]


class Unusable(Exception):
    """One item cannot be used; the message is the reason, without the item's name."""


@dataclass
class Samples:
    """Items, and the function that turns one into feeds of batch 1. Satisfies `base.protocols.SampleSource`.

    Attributes:
        description: What the user named.
        items: Keys of the samples in the order of use; whatever `load` understands.
        load: Item → feeds. Raises `Unusable` where this one item is broken.
        name_of: Item → name for messages.
        label_of: Item → class index; None where classes are unknown.
        labels_note: Where labels come from, or why there are none; None where nobody would expect any.
        limit: Samples to yield at most; None: as many as there are.
        in_file_order: Items stand as in the user's file, so only a choice spread over all of them is a fair draw.
            Otherwise any prefix is.
        parts: For data made from few originals: samples for calibration and for judging that share no original.
        made_up: Noise: good for speed, says nothing of accuracy.
        strict: A broken item is an error, not a warning.
        skipped: Name → why it could not be used, filled while iterating.
    """

    description: str
    items: Sequence[Any]
    load: Callable[[Any], Feeds]
    name_of: Callable[[Any], str] = str
    label_of: Callable[[Any], int] | None = None
    labels_note: str | None = None
    limit: int | None = None
    in_file_order: bool = False
    parts: tuple[Samples, Samples] | None = None
    made_up: bool = False
    strict: bool = False
    skipped: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items) if self.limit is None else min(self.limit, len(self.items))

    def samples(self) -> Iterator[Feeds]:
        """Yield feeds of batch 1, from the first sample on, each time it is called.

        Raises:
            UsageError: Not one item is usable; or one is not, and `strict` is set.
        """
        given = 0
        for item in self.items:
            if given == self.limit:
                return
            feeds = self._load_or_skip(item)
            if feeds is not None:
                given += 1
                yield feeds
        if not given and self.limit != 0:
            raise UsageError(self._nothing_usable())

    def labels(self) -> list[int] | None:
        """Class index of each sample, where classes are known.

        Which items are broken is known only once they were read: call it after `samples` has run through.
        """
        if self.label_of is None:
            return None
        usable = [item for item in self.items if self.name_of(item) not in self.skipped]
        return [self.label_of(item) for item in usable[: self.limit]]

    def _load_or_skip(self, item: Any) -> Feeds | None:
        try:
            return self.load(item)
        except Unusable as reason:
            name = self.name_of(item)
            if self.strict:
                raise UsageError(f"{self.description}: {name!r} cannot be used ({reason}); mend or remove it") from None
            self.skipped[name] = str(reason)
            return None

    def _nothing_usable(self) -> str:
        first = "; ".join(f"{name!r}: {reason}" for name, reason in list(self.skipped.items())[:3])
        return f"{self.description}: none of its {len(self.items)} samples can be used ({first or 'it is empty'})"


def in_batches(source: Samples, size: int) -> Samples:
    """The same samples, `size` of them a feed, for a model whose batch is fixed; what is left over is dropped.

    A broken item takes its whole batch with it. A batch has no one class, so there are no labels.
    """
    if size == 1:
        return source

    def load(start: int) -> Feeds:
        rows = [source.load(source.items[start + place]) for place in range(size)]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    parts = None if source.parts is None else (in_batches(source.parts[0], size), in_batches(source.parts[1], size))
    return replace(
        source,
        items=range(0, len(source.items) - size + 1, size),
        load=load,
        name_of=lambda start: f"{source.name_of(source.items[start])} and {size - 1} more",
        label_of=None,
        labels_note=None if source.label_of is None else f"no true top-1: the model's batch is fixed to {size}",
        parts=parts,
    )
