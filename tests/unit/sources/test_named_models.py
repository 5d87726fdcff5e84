"""Models by name, on real torchvision and timm, without a network."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.base.tensors import parse_tensor
from deploykit.sources import resolve


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every request goes to a proxy that is not there; nothing is cached."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://localhost:9")
    monkeypatch.setattr("torch.hub._hub_dir", str(tmp_path))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("reference", ["resnet18", "torchvision:resnet18", "timm:resnet10t.c3_in1k"])
def test_without_a_network_the_ways_out_are_named(reference: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be reached.*--weights FILE, or --weights none") as caught:
        resolve(reference)
    assert reference in str(caught.value)


def test_a_card_speaks_before_the_source() -> None:
    card, plain = (
        resolve("mobilenet_v3_small", weights="none"),
        resolve("torchvision:mobilenet_v3_small", weights="none"),
    )
    assert card.info.task == plain.info.task == "classification"
    assert card.preprocessing == plain.preprocessing
    assert card.inputs == plain.inputs == (parse_tensor("image:batchx3x224x224"),)
    assert card.default_calibration == "builtin:photos"


def test_random_weights_are_marked_seeded_and_alive() -> None:
    first, second = (resolve("mobilenet_v3_small", weights="none") for _ in range(2))
    assert first.info.random_weights
    assert first.fingerprint == second.fingerprint
    with torch.no_grad():
        output = first.payload(torch.randn(2, 3, 224, 224))
    assert 1e-3 < output.std() < 1e3, "activations that die make speed and parity meaningless"


def test_a_zero_head_gets_random_values() -> None:
    net = resolve("timm:vit_tiny_patch16_224", weights="none").payload
    assert all(parameter.any() for parameter in net.parameters() if parameter.ndim >= 2)


def test_another_size_drops_a_preprocessing_that_makes_the_old_one() -> None:
    loaded = resolve("resnet18", weights="none", inputs=[parse_tensor("image:1x3x96x96")])
    assert loaded.inputs[0].shape == (1, 3, 96, 96)
    assert (loaded.preprocessing, loaded.default_calibration) == (None, None)


def test_a_weights_file_of_torchvisions_own_keys(tmp_path: Path) -> None:
    import torchvision

    net = torchvision.models.squeezenet1_1(weights=None)
    torch.save(net.state_dict(), tmp_path / "w.pth")
    loaded = resolve("squeezenet1_1", weights=str(tmp_path / "w.pth"))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), loaded.payload.parameters(), strict=True))
    assert not loaded.info.random_weights


@pytest.mark.usefixtures("no_network")
def test_weights_that_are_cached_already_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchvision

    weights = torchvision.models.SqueezeNet1_1_Weights.DEFAULT
    net = torchvision.models.squeezenet1_1(weights=None)
    (tmp_path / "checkpoints").mkdir()
    torch.save(net.state_dict(), tmp_path / "checkpoints" / weights.url.rsplit("/", 1)[-1])
    loaded = resolve("squeezenet1_1")
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), loaded.payload.parameters(), strict=True))
    assert loaded.info.weights == "default"


@pytest.mark.parametrize(
    ("reference", "near"),
    [("torchvision:resnet51", "resnet50"), ("timm:resnet51", "resnet50"), ("efficientnet-lite:lite1", "lite0")],
)
def test_a_mistyped_name_gets_near_misses(reference: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=near):
        resolve(reference)


def test_efficientnet_lite0_knows_its_classes() -> None:
    """Real weights, real photographs: the card's preprocessing and the renamed keys are right, or this fails."""
    skimage_data = pytest.importorskip("skimage.data")
    from PIL import Image

    loaded = resolve("efficientnet-lite0")
    how = loaded.preprocessing
    assert how is not None and how.resize is not None
    # ImageNet-1k indices: tabby, tiger cat, Egyptian cat; espresso; missile, projectile; tripod.
    expected = {"chelsea": {281, 282, 285}, "coffee": {967}, "rocket": {657, 744}, "camera": {872}}
    for name, classes in expected.items():
        image = Image.fromarray(getattr(skimage_data, name)()).convert("RGB")
        scale = how.resize / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
        left, top = (image.width - how.size[1]) // 2, (image.height - how.size[0]) // 2
        pixels = np.asarray(image.crop((left, top, left + how.size[1], top + how.size[0])), np.float32)
        values = (pixels / 255 * how.scale_to - how.mean) / how.std
        with torch.no_grad():
            logits = loaded.payload(torch.tensor(values.transpose(2, 0, 1)[None].astype(np.float32)))
        assert int(logits.argmax()) in classes, name


def test_a_detectors_boxes_are_torchvisions_own() -> None:
    import torchvision
    from torchvision.ops.boxes import clip_boxes_to_image

    from deploykit.sources.random_weights import seeded

    loaded = resolve("ssdlite320_mobilenet_v3_large", weights="none")
    images = torch.rand(2, 3, 320, 320)
    with torch.no_grad():
        outputs = loaded.payload(images)
    with seeded():
        own = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).eval()
    own.load_state_dict(loaded.payload.state_dict(), strict=True)
    with torch.no_grad():
        heads = own.head(list(own.backbone(images).values()))
        boxes = own.box_coder.decode_single(heads["bbox_regression"][1], loaded.payload.anchors)
    torch.testing.assert_close(outputs["boxes"][1], clip_boxes_to_image(boxes, (320, 320)), atol=1e-3, rtol=0)
    torch.testing.assert_close(outputs["scores"][1], heads["cls_logits"][1].softmax(-1))
    assert loaded.info.task == "detection"
