from pathlib import Path

import pytest

from deploykit.targets.catalog import load_catalog
from deploykit.targets.host import cpu_model, host_target, memory_bytes


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine_is_a_target_of_its_own() -> None:
    file = load_catalog().files["host"]
    assert file.kind == "host"
    assert file.cpu_count is not None
    assert file.cpu_count >= 1
    assert file.silicon.sm_count is None


def test_a_container_has_what_its_cgroup_grants(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\n\nprocessor\t: 1\nmodel name\t: Other\n",
            "proc/meminfo": "MemTotal:       64000000 kB\nMemFree: 1 kB\n",
            "sys/fs/cgroup/memory.max": "8000000000\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
        },
    )
    file = host_target(root)
    assert file.cpu == "Some CPU @ 2.0GHz"
    assert file.cpu_count == 1
    assert file.memory is not None
    assert file.memory.size_gb == 8.0


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 2048000), ("9223372036854771712", 2048000), ("1000", 1000), ("", 2048000)]
)
def test_the_lower_of_machine_and_cgroup_counts(tmp_path: Path, limit: str, expected: int) -> None:
    files = {"proc/meminfo": "MemTotal: 2000 kB\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{limit}\n"}
    assert memory_bytes(tree(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd42\n", "Arm implementer 0x41 part 0xd42"),
        ("processor : 0\nCPU part : 0xd42\n\nModel : Board 4\n", "Board 4"),
    ],
)
def test_arm_boards_that_name_no_model(tmp_path: Path, cpuinfo: str, expected: str) -> None:
    assert cpu_model(tree(tmp_path, {"proc/cpuinfo": cpuinfo})) == expected


def test_a_kernel_that_says_nothing_leaves_memory_open(tmp_path: Path) -> None:
    assert host_target(tmp_path).memory is None
