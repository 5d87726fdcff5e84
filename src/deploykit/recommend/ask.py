"""A question asked where one stands: the model meant, own and published measurements of it, the catalogue."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from deploykit.base.artifact_cache import artifact_folder, newest_artifact
from deploykit.base.errors import UnknownNameError
from deploykit.base.home import artifacts_folder
from deploykit.base.vocab import DEFAULT_MODEL
from deploykit.recommend.answer import Recommendation
from deploykit.recommend.question import Question, answer
from deploykit.results.measurement import Measurement
from deploykit.results.published import published_measurements, published_models
from deploykit.results.store import stored
from deploykit.sources.catalog import card_names, find_card
from deploykit.targets.catalog import load_catalog


def recommend(question: Question) -> Recommendation:
    """The cheapest target that meets an SLA, with everything that was looked at. Nothing is written.

    Args:
        question: What is asked. Without a model: the one exported or measured last, else resnet50; the answer says
            which.

    Raises:
        UnknownNameError: Nothing is known of a model of that name.
        UsageError: A price file, target file or reference is wrong.
        StoreError: The result store cannot be read.
    """
    if not question.model:
        model, note = _model_at_hand()
        question = replace(question, model=model, model_note=note)
    if question.today == dt.date.min:
        question = replace(question, today=dt.datetime.now(dt.timezone.utc).date())
    return answer(question, measurements_of(question.model), load_catalog())


def measurements_of(model: str) -> list[Measurement]:
    """What was measured here, and published, of a model.

    Args:
        model: Name of a card, of a published model, or of one that was measured or exported here.

    Raises:
        UnknownNameError: It is none of these.
    """
    own = stored(model=model)
    card = find_card(model) if model in card_names() else None
    published = card.published_name if card else model
    if card is None and not own and not _exported_here(model) and published not in published_models():
        hint = "`deploykit models list` shows the cards; published models have names of their own, like bert-large-99"
        raise UnknownNameError("model", model, {*card_names(), *published_models()}, hint)
    return own + (published_measurements(published) if published else [])


def _model_at_hand() -> tuple[str, str]:
    """The model that was exported or measured last, whichever is newer, and a sentence that says so."""
    artifact = newest_artifact(artifacts_folder())
    measured = next(iter(stored(limit=1)), None)
    if measured is not None and measured.date and (artifact is None or measured.date > artifact.manifest.created):
        return measured.model, f"no --model given: the one measured last, {measured.model}"
    if artifact is not None:
        return artifact.manifest.model.name, f"no --model given: the one exported last, {artifact.manifest.model.name}"
    return DEFAULT_MODEL, f"no --model given, and nothing exported or measured here: {DEFAULT_MODEL}"


def _exported_here(model: str) -> bool:
    return artifact_folder(artifacts_folder(), model, "", "").parent.is_dir()
