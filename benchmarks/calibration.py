"""INT8 entropy calibration of ResNet-50: time and memory, against onnxruntime.quantization on the same images.

Each calibration runs in a process of its own, so that peak memory is its own (ru_maxrss). What is timed is calibration
alone: the fp32 graph and the images, crops of scikit-image's photographs, are there already.

    python benchmarks/calibration.py [--images 64] [--many 512] [--skip-onnxruntime]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from deploykit import pipeline
from deploykit.base.artifact import Artifact, read_artifact
from deploykit.base.vocab import CalibrationMethod
from deploykit.precision.calib_data import open_samples
from deploykit.precision.samples import Samples

MODEL = "resnet50"


def images(artifact: Artifact) -> Samples:
    manifest = artifact.manifest
    return open_samples("builtin:photos", inputs=manifest.inputs, preprocessing=manifest.preprocessing)


def ours(artifact: Artifact, count: int) -> None:
    from deploykit.precision.calibrate import calibrate

    source = images(artifact)
    calibrate(
        artifact, source, method=CalibrationMethod.ENTROPY, samples=count,
        data_digest="benchmark", open_session=pipeline.open_session,
    )  # fmt: skip


def theirs(artifact: Artifact, count: int) -> None:
    from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = islice(images(artifact).samples(), count)

        def get_next(self) -> dict[str, object] | None:
            return next(self.left, None)

    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            artifact.onnx_path, augmented_model_path=f"{folder}/augmented.onnx",
            calibrate_method=CalibrationMethod.Entropy,
        )  # fmt: skip
        calibrator.collect_data(Reader())
        calibrator.compute_data()


def in_child(who: str, path: Path, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", who, str(path), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{who:12} {count:4} images  {found['seconds']:7.1f} s  {found['peak_mb']:7.0f} MB", flush=True)
    return found


def child(who: str, path: str, count: str) -> None:
    started = time.perf_counter()
    {"ours": ours, "onnxruntime": theirs}[who](read_artifact(Path(path)), int(count))
    seconds = time.perf_counter() - started
    # Linux counts ru_maxrss in KiB.
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"seconds": seconds, "peak_mb": peak_mb}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--many", type=int, default=512)
    parser.add_argument("--skip-onnxruntime", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return child(*asked.child)
    path = pipeline.export(MODEL, pipeline.ExportSettings(weights="none")).artifact.path
    print(f"load average {os.getloadavg()[0]:.1f}")
    few = in_child("ours", path, asked.images)
    if not asked.skip_onnxruntime:
        other = in_child("onnxruntime", path, asked.images)
        print(
            f"time ratio {other['seconds'] / few['seconds']:.1f}, memory ratio {other['peak_mb'] / few['peak_mb']:.1f}"
        )
    many = in_child("ours", path, asked.many)
    print(f"peak of {asked.many} images ÷ peak of {asked.images}: {many['peak_mb'] / few['peak_mb']:.3f}")
    return None


if __name__ == "__main__":
    main()
