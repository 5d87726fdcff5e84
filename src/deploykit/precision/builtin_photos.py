"""`builtin:photos`: the photographs that scikit-image's wheel carries, cropped and flipped into as many as are wanted.

They stand in where nobody gave data: real pictures, but few, and not of what the model will see. Calibration and
judging take different photographs, so that no crop of one is judged with ranges from another crop of it.
"""

from __future__ import annotations

import importlib.util
import math
import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import MissingExtraError, UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision import images
from deploykit.precision.samples import Feeds, Samples

if TYPE_CHECKING:
    from PIL import Image

NAME = "builtin:photos"
ADVICE = (
    "calibrated on builtin:photos, crops of a few photographs: your own data (--calibration-data) gives better "
    "ranges and an accuracy figure that means something for your use"
)

# Pictures of the world, in the public domain or CC0 by scikit-image's own list: no drawings, scans or diagrams.
# The right half of the stereo pair `motorcycle` is left out: it would be the same photograph twice.
CALIBRATION_PHOTOS = (
    "astronaut.png",
    "coffee.png",
    "motorcycle_left.png",
    "grass.png",
    "hubble_deep_field.jpg",
    "retina.jpg",
)
# Of everyday things, since a classifier's answer to the sky or an eye is a toss-up in fp32 already.
JUDGING_PHOTOS = ("chelsea.png", "rocket.jpg", "camera.png")

_CROPS_EACH = 100_000
_AREA = (0.2, 1.0)
_ASPECT = (3 / 4, 4 / 3)


def open_photos(how: Preprocessing, spec: TensorSpec, *, seed: int) -> Samples:
    """Crops of the photographs as samples of one input, the same for the same seed.

    Raises:
        MissingExtraError: scikit-image or Pillow is not installed.
        UsageError: `how` does not make what the input wants.
    """
    images.require_pillow()
    images.check_fits(how, spec)
    parts = tuple(_crops(photos, how, spec, seed) for photos in (CALIBRATION_PHOTOS, JUDGING_PHOTOS))
    return replace(_crops(CALIBRATION_PHOTOS + JUDGING_PHOTOS, how, spec, seed), parts=(parts[0], parts[1]))


def _crops(photos: tuple[str, ...], how: Preprocessing, spec: TensorSpec, seed: int) -> Samples:
    """Item `i` is crop `i // photos` of photograph `i % photos`."""
    folder = _photo_folder()

    def name_of(item: int) -> str:
        return f"{photos[item % len(photos)]}#{item // len(photos)}"

    def load(item: int) -> Feeds:
        # Seeded by text: the same crop on every machine and Python.
        crop = random_crop(_photo(folder / photos[item % len(photos)]), random.Random(f"{seed}:{name_of(item)}"))
        return {spec.name: images.image_tensor(crop, how, spec)}

    return Samples(NAME, range(len(photos) * _CROPS_EACH), load, name_of)


def random_crop(picture: Image.Image, draw: random.Random) -> Image.Image:
    """A part of a picture, of random area, aspect and place, flipped or not."""
    from PIL import ImageOps

    area = picture.width * picture.height * draw.uniform(*_AREA)
    aspect = math.exp(draw.uniform(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
    width = min(picture.width, round(math.sqrt(area * aspect)))
    height = min(picture.height, round(math.sqrt(area / aspect)))
    left = draw.randint(0, picture.width - width)
    top = draw.randint(0, picture.height - height)
    crop = picture.crop((left, top, left + width, top + height))
    return ImageOps.mirror(crop) if draw.random() < 0.5 else crop


def _photo_folder() -> Path:
    # Found without importing scikit-image, which takes a second and more.
    found = importlib.util.find_spec("skimage")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("scikit-image", "quantize", NAME)
    return Path(found.submodule_search_locations[0]) / "data"


@lru_cache(maxsize=len(CALIBRATION_PHOTOS + JUDGING_PHOTOS))
def _photo(path: Path) -> Image.Image:
    if not path.is_file():
        raise UsageError(f"{NAME}: this scikit-image does not carry {path.name}; give own data by --calibration-data")
    return images.open_upright(path)
