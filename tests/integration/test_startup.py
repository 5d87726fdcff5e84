"""The commands that people type first must not wait for libraries that they do not use."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "onnx", "onnxruntime", "torchvision", "numba", "skimage")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["recommend", "--latency-ms", "5", "--fps", "500"], ["targets", "list"], ["models", "list"]],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: list[str], tmp_path: object) -> None:
    code = (
        "import sys; from deploykit.cli.app import run; code = run(sys.argv[2:]);"
        "loaded = [name for name in sys.argv[1].split(',') if name in sys.modules];"
        "print('LOADED', loaded, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, ",".join(HEAVY), *arguments]
    done = subprocess.run(command, cwd=str(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "LOADED []"
