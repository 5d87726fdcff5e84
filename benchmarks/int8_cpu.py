"""How much faster INT8 is than FP32 on this CPU, batch 1: ours, and the same model by onnxruntime.quantization.

The sessions run in one process in short turns, so that whatever else the machine does meets all alike; what is
compared is the median of the rounds' ratios. The speed of a dense network does not depend on its weights, so random
ones will do. onnxruntime's quantizer runs with its own defaults (QDQ, signed activations and weights) after its own
preprocessing.

    python benchmarks/int8_cpu.py [--models resnet50 efficientnet-lite0] [--rounds 15] [--seconds 1]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from loops import bare_p50_ms

from deploykit import pipeline
from deploykit.base.artifact import Artifact
from deploykit.base.vocab import Precision
from deploykit.bench.inputs import random_feeds
from deploykit.precision.calib_data import open_samples
from deploykit.runtime import runtime

SAMPLES = 8
"""Of calibration: ranges change no speed."""


def by_onnxruntime(artifact: Artifact, folder: Path) -> Path:
    """The model quantized by onnxruntime.quantization."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    manifest = artifact.manifest
    source = open_samples("builtin:photos", inputs=manifest.inputs, preprocessing=manifest.preprocessing)

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = islice(source.samples(), SAMPLES)

        def get_next(self) -> dict[str, object] | None:
            return next(self.left, None)

    prepared, quantized = folder / "prepared.onnx", folder / "quantized.onnx"
    quant_pre_process(artifact.onnx_path, prepared)
    quantize_static(prepared, quantized, Reader())
    return quantized


def rounds(model: str, count: int, seconds: float, threads: int | None) -> dict[str, list[float]]:
    """Each one's p50 in ms, a round each."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings = pipeline.ExportSettings(
            precision=Precision.INT8, weights="none", calibration_data="builtin:photos", calibration_samples=SAMPLES,
            eval_samples=SAMPLES, output_dir=Path(folder),
        )  # fmt: skip
        done = pipeline.export(model, settings)
        files = {"fp32": done.fp32.onnx_path, "int8": done.artifact.onnx_path}
        files["onnxruntime int8"] = by_onnxruntime(done.fp32, Path(folder))
        sessions = {
            name: stack.enter_context(runtime("onnxruntime").open(path, threads=threads))
            for name, path in files.items()
        }
        feeds = random_feeds(sessions["fp32"].inputs)
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for number in range(count + 1):
            for name, session in sessions.items():
                p50 = bare_p50_ms(session, feeds, seconds)
                times[name] += [p50] if number else []  # the first round warms up
        return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "efficientnet-lite0"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    for model in arguments.models:
        times = rounds(model, arguments.rounds, arguments.seconds, arguments.threads)
        for name, found in times.items():
            ratio = statistics.median(fp32 / own for fp32, own in zip(times["fp32"], found, strict=True))
            print(f"{model:20} {name:18} p50 {statistics.median(found):7.2f} ms  {ratio:5.2f} × as fast as fp32")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
