"""The host's CPU, memory and temperatures from the kernel's files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.probe.cpu_host import container, isa_of, read_cpu, read_memory, read_temperatures
from deploykit.probe.tree import Tree, natural_key, whole_number

MakeTree = Callable[[dict[str, str]], Path]
CPUINFO = "".join(
    f"processor\t: {n}\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t: fpu avx2 avx512f\n\n" for n in range(64)
)


def test_a_container_of_two_cores_on_a_machine_of_64_has_two(tree_of: MakeTree) -> None:
    tree = Tree(tree_of({"proc/cpuinfo": CPUINFO, "sys/fs/cgroup/cpu.max": "200000 100000\n"}))
    cpu = read_cpu(tree, affinity=64)
    assert (cpu.cores, cpu.quota, cpu.usable) == (64, 2.0, 2)
    assert "sys/fs/cgroup/cpu.max" in tree.seen


@pytest.mark.parametrize(
    ("quota", "affinity", "usable"), [("max 100000\n", 64, 64), ("max 100000\n", 3, 3), ("150000 100000\n", 64, 2)]
)
def test_the_least_of_cores_affinity_and_quota(quota: str, affinity: int, usable: int, tree_of: MakeTree) -> None:
    tree = Tree(tree_of({"proc/cpuinfo": CPUINFO, "sys/fs/cgroup/cpu.max": quota}))
    assert read_cpu(tree, affinity).usable == usable


@pytest.mark.parametrize(
    ("line", "isa"),
    [
        (
            "flags : fpu avx2 avx512f avx512_vnni amx_tile amx_int8",
            ("AVX2", "AVX512", "AVX512-VNNI", "AMX", "AMX-INT8"),
        ),
        ("Features : fp asimd asimddp i8mm", ("NEON", "NEON dot product", "I8MM")),
        ("bugs : spectre avx2", ()),
    ],
)
def test_instruction_sets(line: str, isa: tuple[str, ...]) -> None:
    assert isa_of(line) == isa


def test_memory_swap_and_the_containers_limit(tree_of: MakeTree) -> None:
    tree = Tree(
        tree_of(
            {
                "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 300 kB\nSwapFree: 100 kB\n",
                "proc/vmstat": "pswpin 7\npswpout 9\n",
                "sys/fs/cgroup/memory.max": "512000\n",
            }
        )
    )
    memory = read_memory(tree)
    assert (memory.total_bytes, memory.swap_used_bytes, memory.limit_bytes) == (1_024_000, 204_800, 512_000)
    assert (memory.pages_swapped_in, memory.pages_swapped_out) == (7, 9)


def test_no_limit_is_none(tree_of: MakeTree) -> None:
    root = tree_of({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert read_memory(Tree(root)).limit_bytes is None


def test_what_is_no_temperature_is_left_out(tree_of: MakeTree) -> None:
    root = tree_of({"a": "-256000\n", "b": "51500\n", "c": "broken\n"})
    assert read_temperatures(Tree(root), {"cv0": "a", "cpu": "b", "x": "c", "gone": "d"}) == {"cpu": 51.5}


def test_a_container_is_seen(tree_of: MakeTree) -> None:
    assert container(Tree(tree_of({"proc/1/cgroup": "12:cpu:/kubepods/pod1\n"}))) == "/proc/1/cgroup names kubepods"


def test_an_empty_machine_tells_nothing(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert read_cpu(tree, None).usable is None
    assert read_memory(tree).total_bytes is None
    assert container(tree) is None


@given(st.text(max_size=30))
def test_a_whole_number_is_nothing_else(text: str) -> None:
    number = whole_number(text)
    assert number is None or text.strip().lstrip("-").lower().startswith(tuple("0123456789"))


def test_names_in_the_order_that_people_count() -> None:
    names = ["cpu10", "cpu2", "cpu", "cpu2x"]
    assert sorted(names, key=natural_key) == ["cpu", "cpu2", "cpu2x", "cpu10"]


def test_a_path_that_climbs_is_not_read(tree_of: MakeTree) -> None:
    root = tree_of({"secret": "1", "inside/x": "2"})
    assert Tree(root / "inside").text("../secret") is None
