"""Pictures as people have them → pixels; preprocessing against torchvision's own presets."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision import images
from deploykit.precision.samples import Unusable


def pixels(path):
    return np.asarray(images.open_upright(path).convert("RGB"))


def photo(width=64, height=48, seed=0):
    """Smooth colours, so that JPEG keeps them."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def spec(*shape, dtype="float32"):
    return TensorSpec(name="x", dtype=dtype, shape=("batch", *shape))


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path):
    Image.fromarray(np.full((4, 4), 32896, np.uint16)).save(tmp_path / "a.png")
    assert (pixels(tmp_path / "a.png") == 128).all()


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (257, 1), (65535, 255), (65534, 255)])
def test_sixteen_bit_tiff(tmp_path, value, expected):
    Image.fromarray(np.full((2, 2), value, np.uint16)).save(tmp_path / "a.tif")
    assert (pixels(tmp_path / "a.tif") == expected).all()


def test_exif_rotation_is_applied(tmp_path):
    lying = np.zeros((30, 60, 3), np.uint8)
    lying[15:, :30] = [255, 0, 0]
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(lying).save(tmp_path / "a.jpg", exif=exif, quality=95)
    upright = pixels(tmp_path / "a.jpg")
    assert upright.shape == (60, 30, 3)
    assert upright[2, 2, 0] > 240


def test_alpha_lies_on_white(tmp_path):
    hidden_green = np.zeros((4, 4, 4), np.uint8)
    hidden_green[..., 1] = 255
    hidden_green[2:, :, 3] = 255
    Image.fromarray(hidden_green).save(tmp_path / "a.png")
    seen = pixels(tmp_path / "a.png")
    assert (seen[0] == 255).all()
    assert (seen[3] == [0, 255, 0]).all()


@pytest.mark.parametrize("mode", ["LA", "P", "L", "RGB"])
def test_every_form_of_transparency(tmp_path, mode):
    image = Image.new("L" if mode == "P" else mode, (4, 4), 0)
    image = image.convert("P") if mode == "P" else image
    clear = {} if mode == "LA" else {"transparency": (0, 0, 0) if mode == "RGB" else 0}
    image.save(tmp_path / "a.png", **clear)
    assert (pixels(tmp_path / "a.png") == 255).all()


@pytest.mark.parametrize("mode", ["L", "P", "1", "RGB"])
def test_plain_modes_keep_their_colours(tmp_path, mode):
    black_and_white = np.zeros((4, 4, 3), np.uint8)
    black_and_white[:, 2:] = 255
    Image.fromarray(black_and_white).convert(mode).save(tmp_path / "a.png")
    assert (pixels(tmp_path / "a.png") == black_and_white).all()


def test_cmyk_jpeg_keeps_its_colours(tmp_path):
    original = photo()
    original.convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    assert np.abs(pixels(tmp_path / "a.jpg").astype(int) - np.asarray(original).astype(int)).mean() < 3


def test_cmyk_without_adobes_marker_is_not_inverted(tmp_path):
    ink = Image.fromarray(np.full((8, 8, 4), [0, 0, 0, 255], np.uint8), "CMYK")
    ink.save(tmp_path / "a.tif")
    assert (pixels(tmp_path / "a.tif") == 0).all()


@pytest.mark.parametrize("suffix", ["webp", "bmp", "gif", "ppm", "JPG"])
def test_formats(tmp_path, suffix):
    photo().save(tmp_path / f"a.{suffix}", "JPEG" if suffix == "JPG" else None)
    assert pixels(tmp_path / f"a.{suffix}").shape == (48, 64, 3)


def test_broken_files_say_what_is_wrong(tmp_path):
    whole = tmp_path / "a.jpg"
    photo().save(whole)
    for name, data, reason in (
        ("cut.jpg", whole.read_bytes()[: whole.stat().st_size // 2], "truncated"),
        ("empty.jpg", b"", "empty"),
        ("text.jpg", b"see the other folder\n", "not an image"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Unusable, match=reason):
            images.open_upright(tmp_path / name)


def test_cut_png_is_broken_too(tmp_path):
    photo().save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(Unusable):
        images.open_upright(tmp_path / "a.png")


def test_a_picture_that_would_fill_memory_is_refused(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "a.png")
    with pytest.raises(Unusable, match="too large"):
        images.open_upright(tmp_path / "a.png")


@pytest.mark.parametrize("mode", ["F", "I"])
def test_pixels_of_unknown_range_are_refused(tmp_path, mode):
    Image.new(mode, (4, 4), 100_000).save(tmp_path / "a.tif")
    with pytest.raises(Unusable, match="what range white is"):
        images.open_upright(tmp_path / "a.tif")


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (224, 224), (1, 1), (97, 311)])
@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic"])
def test_equals_torchvisions_classification_preset(size, filter_name):
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms._presets import ImageClassification

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    preset = ImageClassification(
        crop_size=224, resize_size=256, mean=mean, std=std, interpolation=InterpolationMode(filter_name)
    )
    how = Preprocessing(input="x", size=(224, 224), resize=256, mean=mean, std=std, interpolation=filter_name)
    image = photo(*size)
    made = images.image_tensor(image, how, spec(3, 224, 224))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made[0], preset(image).numpy(), atol=1e-5)


@pytest.mark.parametrize("size", [(90, 40), (41, 97)])
def test_a_picture_smaller_than_the_crop_is_padded_like_torchvisions(size):
    from torchvision.transforms import v2

    theirs = v2.Compose([v2.Resize(40), v2.CenterCrop((64, 51)), v2.PILToTensor()])
    how = Preprocessing(input="x", size=(64, 51), resize=40, scale_to=255.0)
    made = images.image_tensor(photo(*size), how, spec(3, 64, 51))
    np.testing.assert_array_equal(made[0], theirs(photo(*size)).numpy())


def test_layouts_colours_and_ranges():
    image = Image.new("RGB", (10, 10), (255, 128, 0))
    base = {"input": "x", "size": (4, 4), "scale_to": 255.0}
    bgr = images.image_tensor(image, Preprocessing(**base, color="BGR", layout="NHWC"), spec(4, 4, 3))
    assert bgr.shape == (1, 4, 4, 3)
    assert bgr[0, 0, 0].tolist() == [0, 128, 255]
    shifted = Preprocessing(**base, mean=(10.0, 20.0, 30.0), std=(1.0, 2.0, 3.0), color="BGR", layout="NHWC")
    assert images.image_tensor(image, shifted, spec(4, 4, 3))[0, 0, 0].tolist() == [-10, 54, 75]
    grey = images.image_tensor(image, Preprocessing(**base, color="L"), spec(1, 4, 4))
    assert grey.shape == (1, 1, 4, 4)
    assert grey[0, 0, 0, 0] == 151  # 0.299 · 255 + 0.587 · 128


def test_a_uint8_input_gets_pixels_and_is_not_normalised():
    how = Preprocessing(input="x", size=(4, 4), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), layout="NHWC")
    made = images.image_tensor(Image.new("RGB", (9, 9), (1, 2, 250)), how, spec(4, 4, 3, dtype="uint8"))
    assert made.dtype == np.uint8
    assert made[0, 0, 0].tolist() == [1, 2, 250]


@pytest.mark.parametrize(
    ("shape", "layout", "color", "size"),
    [
        ((16, 24, 3), "NHWC", "RGB", (16, 24)),
        ((3, 16, 24), "NCHW", "RGB", (16, 24)),
        ((16, 24, 1), "NHWC", "L", (16, 24)),
    ],
)
def test_raw_pixels_reads_the_layout_from_the_shape(shape, layout, color, size):
    how = images.raw_pixels(spec(*shape, dtype="uint8"))
    assert (how.layout, how.color, how.size) == (layout, color, size)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 4), ("h", "w", 3)])
def test_raw_pixels_does_not_guess(shape):
    assert images.raw_pixels(spec(*shape, dtype="uint8")) is None


@pytest.mark.parametrize(
    ("change", "shape", "said"),
    [
        ({}, (3, 8, 9), "8, 9"),
        ({"layout": "NHWC"}, (3, 8, 8), "NHWC"),
        ({"color": "L"}, (3, 8, 8), "L"),
        ({"std": (1.0, 0.0, 1.0)}, (3, 8, 8), "std of 0"),
        ({"mean": (0.1, 0.2)}, (3, 8, 8), "mean"),
        ({"color": "L", "mean": (0.1, 0.2, 0.3)}, (1, 8, 8), "mean"),
    ],
)
def test_preprocessing_that_does_not_fit_is_refused(change, shape, said):
    how = Preprocessing(**{"input": "x", "size": (8, 8), **change})
    with pytest.raises(UsageError, match=said):
        images.check_fits(how, spec(*shape))
