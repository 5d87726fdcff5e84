"""TensorRT's calibration cache: scales for implicit INT8, which is how DLA and TensorRT ≤ 10 take them.

The format is text: a line `TRT-<version>-<calibrator>` and then `<tensor>: <8 hex digits>` for each tensor, the digits
being the IEEE 754 single-precision scale (threshold ÷ 127) in big-endian order. It is documented nowhere; it is what
TensorRT's own `IInt8EntropyCalibrator2.write_calibration_cache` hands out (seen in NVIDIA/TensorRT issues 672, 3137).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from deploykit.base.errors import UsageError

CALIBRATOR = "EntropyCalibration2"


@dataclass(frozen=True)
class CalibrationCache:
    """A cache as read.

    Attributes:
        version: TensorRT's version word: `100300` for 10.3.0.
        calibrator: `EntropyCalibration2`, `MinMaxCalibration`, ...
        scales: Tensor → scale.
    """

    version: str
    calibrator: str
    scales: dict[str, float]


def format_cache(scales: Mapping[str, float], tensorrt_version: str) -> str:
    """Write the cache of a TensorRT release.

    Args:
        scales: Tensor name in the ONNX graph → scale (threshold ÷ 127).
        tensorrt_version: Like `10.3.0`: TensorRT ignores a cache of another version and calibrates anew.

    Raises:
        UsageError: A scale is not positive and finite in single precision, or a name cannot stand in the format.
    """
    lines = [f"TRT-{version_word(tensorrt_version)}-{CALIBRATOR}"]
    for name, scale in scales.items():
        if ": " in name or "\n" in name:
            raise UsageError(f"tensor {name!r} cannot be written to a TensorRT calibration cache: rename it")
        lines.append(f"{name}: {_hex(name, scale)}")
    return "\n".join(lines) + "\n"


def parse_cache(text: str) -> CalibrationCache:
    """Read a calibration cache.

    Raises:
        UsageError: Not such a file, or scales that are not positive and finite: every one is named.
    """
    head, *lines = text.splitlines() or [""]
    words = head.split("-", 2)
    if len(words) != 3 or words[0] != "TRT":
        raise UsageError(f"not a TensorRT calibration cache: its first line is {head[:60]!r}, not TRT-<version>-<name>")
    scales: dict[str, float] = {}
    bad = []
    for line in filter(None, lines):
        name, _, digits = line.rpartition(": ")
        scale = _unhex(digits) if name else None
        if scale is None or not (math.isfinite(scale) and scale > 0):
            bad.append(line if scale is None else f"{name} = {scale}")
        else:
            scales[name] = scale
    if bad:
        raise UsageError(f"calibration cache: no usable scale in {'; '.join(bad)}; calibrate again")
    return CalibrationCache(words[1], words[2], scales)


def version_word(version: str) -> str:
    """`10.3.0` → `100300`; before TensorRT 10 a word had four digits: `8.6.1` → `8601`.

    Source: NV_TENSORRT_VERSION in NvInferVersion.h, major·10000 + minor·100 + patch since 10.0 and
    major·1000 + minor·100 + patch before.
    """
    parts = [int(part) for part in version.split(".")[:3] if part.isdigit()]
    if len(parts) != 3:
        raise UsageError(f"TensorRT version {version!r} is not MAJOR.MINOR.PATCH")
    major, minor, patch = parts
    return str(major * (10000 if major >= 10 else 1000) + minor * 100 + patch)


def _hex(name: str, scale: float) -> str:
    try:
        packed = struct.pack(">f", scale)
    except OverflowError:
        packed = b""
    if not packed or not math.isfinite(scale) or struct.unpack(">f", packed)[0] <= 0:
        raise UsageError(f"tensor {name!r} has scale {scale}: it must be positive and finite in single precision")
    return packed.hex()


def _unhex(digits: str) -> float | None:
    try:
        return float(struct.unpack(">f", bytes.fromhex(digits))[0])
    except (ValueError, struct.error):
        return None
