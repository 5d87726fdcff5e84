"""A picture file as people have them → pixels → the input tensor that a `Preprocessing` describes.

What becomes of the odd ones:

    EXIF orientation            applied
    transparency, in any form   composited on white, as a browser shows it on a blank page
    palette, grey, 1 bit        converted
    16-bit grey                 scaled by 1/257, so that 65535 becomes 255
    CMYK, also Adobe's inverted converted without the colour profile, as torchvision's loader does
    animation                   its first frame
    32-bit integer or float     refused: nobody says what range white is
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import MissingExtraError, UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision.array_files import shape_fits
from deploykit.precision.samples import Unusable

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset(
    (
        ".avif",
        ".bmp",
        ".gif",
        ".jfif",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    )
)
"""File name endings taken for pictures, letter case ignored."""

_WHITE = (255, 255, 255, 255)
_PILLOW_16_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def require_pillow() -> None:
    """Raise `MissingExtraError` where Pillow is not installed, before a long walk through a folder."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("pillow", "quantize", "reading images") from error


def open_upright(path: Path) -> Image.Image:
    """Decode a picture file to mode RGB or L, rotated as its EXIF says.

    Raises:
        Unusable: The file is empty, cut short, no picture, too large, or of pixels that have no known white.
    """
    from PIL import Image, ImageOps

    if path.stat().st_size == 0:
        raise Unusable("the file is empty")
    with warnings.catch_warnings():
        # Pillow warns about odd but readable files (palettes, EXIF); a picture that would fill memory is no such case.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(path) as image:
                image.load()
                return _plain(ImageOps.exif_transpose(image))
        except Image.UnidentifiedImageError:
            raise Unusable("not an image in any format that is known here") from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise Unusable(f"too large to decode safely ({error})") from None
        # Pillow's decoders let through what their formats' parsers raise.
        except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise Unusable(_said_of_broken(error)) from None


def _said_of_broken(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"truncated: {text}" if "truncated" in text.lower() or "broken data stream" in text else f"broken: {text}"


def _plain(image: Image.Image) -> Image.Image:
    """Mode RGB or L."""
    from PIL import Image

    if image.mode in _PILLOW_16_BIT:
        return Image.fromarray(_eight_bits(np.asarray(image)))
    if image.mode == "F":
        raise Unusable("32-bit float pixels: nobody says what range white is")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, _WHITE), image).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _eight_bits(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """16-bit grey → 8-bit; 65535 = 255 · 257."""
    wide = pixels.astype(np.int64)
    if wide.min() < 0 or wide.max() > 65535:
        raise Unusable("32-bit integer pixels: nobody says what range white is")
    return ((wide + 128) // 257).astype(np.uint8)


def image_tensor(image: Image.Image, how: Preprocessing, spec: TensorSpec) -> np.ndarray[Any, Any]:
    """A picture as the input of batch 1 that `how` and `spec` describe.

    A uint8 input takes the pixels as they are: its graph normalises them itself.
    """
    mode = "L" if how.color == "L" else "RGB"
    pixels = np.asarray(_cropped(_resized(image.convert(mode), how), how.size))
    if mode == "L":
        pixels = pixels[:, :, np.newaxis]
    if how.color == "BGR":
        pixels = pixels[:, :, ::-1]
    values = pixels if spec.dtype == "uint8" else _normalised(pixels, how, spec.dtype)
    if how.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[np.newaxis])


def _normalised(pixels: np.ndarray[Any, Any], how: Preprocessing, dtype: str) -> np.ndarray[Any, Any]:
    """`(pixel · scale_to / 255 − mean) / std`, in float32 like torchvision."""
    scaled = pixels.astype(np.float32) * np.float32(how.scale_to / 255.0)
    channels = pixels.shape[2]
    mean, std = (np.asarray(values[:channels], np.float32) for values in (how.mean, how.std))
    return np.asarray((scaled - mean) / std, dtype)


def _resized(image: Image.Image, how: Preprocessing) -> Image.Image:
    from PIL import Image

    width, height = image.size
    if how.resize is None:
        wanted = (how.size[1], how.size[0])
    else:
        # The longer side is cut down to a whole number, as torchvision does.
        short, long = min(width, height), max(width, height)
        longer = how.resize * long // short
        wanted = (how.resize, longer) if width <= height else (longer, how.resize)
    if wanted == image.size:
        return image
    return image.resize(wanted, Image.Resampling[how.interpolation.upper()])


def _cropped(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The centre; what the picture lacks is black, as in torchvision."""
    left, top = (_crop_start(have, want) for have, want in zip(image.size, reversed(size), strict=True))
    return image.crop((left, top, left + size[1], top + size[0]))


def _crop_start(have: int, want: int) -> int:
    return -((want - have) // 2) if want > have else round((have - want) / 2)


def check_fits(how: Preprocessing, spec: TensorSpec) -> None:
    """Refuse a preprocessing that does not yield the shape of the input it feeds.

    Raises:
        UsageError: Shapes or types differ; says both.
    """
    if spec.dtype not in ("float32", "float16", "float64", "uint8"):
        raise UsageError(f"input {spec.name!r} is {spec.dtype}, pixels are not; give its data as FILE.npz")
    channels = 1 if how.color == "L" else 3
    _check_statistics(how, channels)
    made = (1, channels, *how.size) if how.layout == "NCHW" else (1, *how.size, channels)
    if not shape_fits(made[1:], spec.shape[1:]):
        raise UsageError(
            f"the preprocessing makes [batch, {', '.join(map(str, made[1:]))}] ({how.layout}, {how.color}) but input "
            f"{spec.name!r} is {list(spec.shape)}; change size, layout or color of the preprocessing"
        )


def _check_statistics(how: Preprocessing, channels: int) -> None:
    """One value a channel; a grey picture may name the same value three times (the default does)."""
    for word, values in (("mean", how.mean), ("std", how.std)):
        if len(values) < channels or (channels == 1 and len(set(values)) > 1):
            raise UsageError(f"the preprocessing of {how.input!r} has {word} {values} for {channels} channel(s)")
    if 0.0 in how.std:
        raise UsageError(f"the preprocessing of {how.input!r} divides by a std of 0")


def raw_pixels(spec: TensorSpec) -> Preprocessing | None:
    """The preprocessing of a uint8 input whose shape says where the channels are; None where it does not.

    The picture is resized straight to the input: a graph with a camera input normalises and crops by itself.
    """
    if spec.dtype != "uint8" or len(spec.shape) != 4:
        return None
    _, *rest = spec.shape
    for layout, channel_axis in (("NHWC", 2), ("NCHW", 0)):
        height, width = (size for axis, size in enumerate(rest) if axis != channel_axis)
        if rest[channel_axis] in (1, 3) and isinstance(height, int) and isinstance(width, int):
            color = "L" if rest[channel_axis] == 1 else "RGB"
            return Preprocessing.model_validate(
                {"input": spec.name, "size": (height, width), "layout": layout, "color": color}
            )
    return None
