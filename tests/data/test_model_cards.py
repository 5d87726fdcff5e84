"""Every card in models/: well formed, true to its source, and named in the tables it says it is in."""

import csv
import json
from pathlib import Path

import pytest

from deploykit.sources import all_cards, find_card
from deploykit.sources.card import ModelCard, card_schema, read_card

MODELS = Path(__file__).resolve().parents[2] / "models"
CARDS = all_cards()
TORCHVISION = [card for card in CARDS if card.source.kind == "torchvision"]
WANTED = {
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "efficientnet-lite0", "efficientnet_b0",
    "mobilenet_v2", "mobilenet_v3_large", "vit_b_16", "densenet121", "ssdlite320_mobilenet_v3_large", "bert-large",
}  # fmt: skip


def by_name(card: ModelCard) -> str:
    return card.name


def test_the_cards_that_people_ask_for_are_there() -> None:
    assert not WANTED - {card.name for card in CARDS}


def test_the_schema_is_up_to_date() -> None:
    assert json.loads((MODELS / "schema.json").read_text(encoding="utf-8")) == card_schema(), (
        "run scripts/make_model_schema"
    )


def test_every_file_is_a_card_or_about_cards() -> None:
    others = {path.name for path in MODELS.iterdir() if path.suffix != ".yaml"}
    assert others == {"README.md", "schema.json"}


@pytest.mark.parametrize("card", CARDS, ids=by_name)
def test_a_card_takes_what_its_preprocessing_makes(card: ModelCard) -> None:
    assert all(entry.shape[0] == "batch" for entry in card.inputs)
    if card.preprocessing is not None:
        entry = next(entry for entry in card.inputs if entry.name == card.preprocessing.input)
        assert entry.shape[-2:] == card.preprocessing.size
        assert len(card.preprocessing.mean) == len(card.preprocessing.std) == entry.shape[1]
        assert card.default_calibration == "builtin:photos"


@pytest.mark.parametrize("card", CARDS, ids=by_name)
def test_a_published_name_is_in_the_published_tables_at_the_same_size(card: ModelCard) -> None:
    if card.published_name is None:
        return
    with (MODELS.parent / "published" / "models.csv").open(encoding="utf-8") as stream:
        shapes = {row["model"]: row["input_shape"] for row in csv.DictReader(stream)}
    sizes = card.inputs[0].shape[1:]
    expected = "x".join(map(str, sizes)) if len(sizes) == 3 else f"seq{sizes[0]}"
    assert shapes[card.published_name] == expected


@pytest.mark.parametrize("card", TORCHVISION, ids=by_name)
def test_a_torchvision_card_says_what_torchvision_says(card: ModelCard) -> None:
    import torchvision

    assert card.weights.name is not None
    weights = torchvision.models.get_model_weights(card.source.model)[card.weights.name]
    transforms = weights.transforms()
    how = card.preprocessing
    assert how is not None
    assert how.size == (transforms.crop_size[0],) * 2
    assert [how.resize] == transforms.resize_size
    assert how.interpolation == transforms.interpolation.value
    assert (list(how.mean), list(how.std)) == (transforms.mean, transforms.std)
    assert card.parameters == weights.meta["num_params"]
    assert card.top1 is not None
    assert card.top1.value == weights.meta["_metrics"]["ImageNet-1K"]["acc@1"]


def test_a_wrong_card_is_refused_by_field(tmp_path: Path) -> None:
    from deploykit.base.errors import UsageError

    text = (MODELS / "resnet18.yaml").read_text(encoding="utf-8")
    wrong = {
        "tasc": text.replace("task:", "tasc:"),
        "inputs.0": text.replace("float32", "float33"),
        "no YAML": "a: [",
        "must agree": text.replace("name: resnet18", "name: resnet19", 1),
        "no input": text.replace("input: image", "input: picture"),
    }
    for where, document in wrong.items():
        path = tmp_path / "resnet18.yaml"
        path.write_text(document, encoding="utf-8")
        with pytest.raises(UsageError, match=where):
            read_card(path)


def test_a_card_where_the_user_stands_takes_our_cards_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    text = (MODELS / "resnet18.yaml").read_text(encoding="utf-8")
    (tmp_path / "models" / "resnet18.yaml").write_text(text.replace("ResNet-18", "Our own"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert find_card("resnet18").description == "Our own"
