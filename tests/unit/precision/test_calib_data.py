"""What `--calibration-data` names → samples: every kind, its errors, the split, the digest."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from deploykit.base.artifact import Preprocessing
from deploykit.base.errors import UsageError
from deploykit.base.tensors import TensorSpec
from deploykit.precision import builtin_photos
from deploykit.precision.calib_data import data_digest, open_samples, split

X = TensorSpec(name="x", dtype="float32", shape=("batch", 3, 8, 8))
HOW = Preprocessing(input="x", size=(8, 8), scale_to=255.0)
IDS = tuple(TensorSpec(name=name, dtype="int64", shape=("batch", "seq")) for name in ("ids", "mask"))


def open_x(data, **options):
    return open_samples(str(data), inputs=[X], preprocessing=HOW, **options)


def write_pictures(folder, names, value=None):
    """One-coloured pictures; the colour is the place in `names`, so a sample tells which file it came from."""
    for index, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10, 10), (index if value is None else value, 0, 0)).save(path, "PNG")


def colours(source):
    return [int(feeds["x"][0, 0, 0, 0]) for feeds in source.samples()]


# Folders of pictures


def test_broken_files_are_named_and_the_rest_is_used(tmp_path):
    write_pictures(tmp_path, ["a.png", "sub/b.PNG", "sub/deep/c.png", "ü name.png"])
    for name, data in (("cut.png", b"\x89PNG\r\n\x1a\n"), ("empty.jpg", b""), ("text.jpg", b"hello")):
        (tmp_path / name).write_bytes(data)
    for name in ("notes.txt", ".DS_Store", ".hidden.png"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "sub" / "loop").symlink_to("..", target_is_directory=True)
    source = open_x(tmp_path)
    assert sorted(colours(source)) == [0, 1, 2, 3]
    assert set(source.skipped) == {"cut.png", "empty.jpg", "text.jpg"}


def test_strict_makes_a_broken_file_an_error(tmp_path):
    write_pictures(tmp_path, ["a.png"])
    (tmp_path / "b.png").write_bytes(b"")
    with pytest.raises(UsageError, match=r"b\.png.*empty"):
        list(open_x(tmp_path, strict=True).samples())


def test_a_folder_of_broken_files_only_is_an_error(tmp_path):
    (tmp_path / "b.png").write_bytes(b"")
    with pytest.raises(UsageError, match=r"none of its 1 .*b\.png.*empty"):
        list(open_x(tmp_path).samples())


def test_order_depends_on_names_and_seed_alone(tmp_path):
    names = [f"{index:02}.png" for index in range(20)]
    write_pictures(tmp_path / "one", names)
    for index in reversed(range(20)):
        write_pictures(tmp_path / "two", [names[index]], value=index)
    first = colours(open_x(tmp_path / "one"))
    assert colours(open_x(tmp_path / "two")) == first
    assert first != sorted(first)
    assert colours(open_x(tmp_path / "one", seed=1)) != first


def test_a_prefix_holds_every_class_in_proportion(tmp_path):
    write_pictures(tmp_path, [f"cat/{index}.png" for index in range(40)], value=1)
    write_pictures(tmp_path, [f"dog/{index}.png" for index in range(10)], value=2)
    taken = colours(open_x(tmp_path))
    assert [taken[:10].count(2), taken[:25].count(2)] == [2, 5]


def test_a_link_to_a_folder_is_followed_once(tmp_path):
    write_pictures(tmp_path / "elsewhere", ["a.png"])
    data = tmp_path / "data"
    data.mkdir()
    (data / "one").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (data / "two").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert len(open_x(data)) == 1


@pytest.mark.parametrize(
    ("names", "classes", "labels"),
    [
        pytest.param(["cat/a.png", "dog/b.png"], 2, [0, 1], id="as many folders as classes: sorted order"),
        pytest.param(["val/cat/a.png", "val/dog/b.png"], 2, [0, 1], id="a folder around all classes"),
        pytest.param(["7/a.png", "3/b.png"], 1000, [7, 3], id="numbers"),
        pytest.param(["003/a.png", "7/b.png"], 1000, [3, 7], id="padded numbers"),
        pytest.param(["cat/a.png", "dog/b.png"], 1000, None, id="which of a thousand?"),
        pytest.param(["7/a.png", "3/b.png"], 5, None, id="a number beyond the classes"),
        pytest.param(["a.png", "dog/b.png"], 2, None, id="a picture beside the folders"),
        pytest.param(["a.png", "b.png"], 2, None, id="no folders"),
        pytest.param(["cat/a.png", "dog/b.png"], None, None, id="no classifier"),
        pytest.param([f"{index}/a.png" for index in range(11)], 11, None, id="'10' before '2', or after '9'?"),
    ],
)
def test_labels_only_where_they_are_certain(tmp_path, names, classes, labels):
    write_pictures(tmp_path, names)
    source = open_x(tmp_path, classes=classes)
    order = colours(source)
    assert source.labels() == (None if labels is None else [labels[index] for index in order])


def test_unknown_labels_say_why(tmp_path):
    write_pictures(tmp_path, ["cat/a.png", "dog/b.png"])
    assert "classes.txt" in open_x(tmp_path, classes=1000).labels_note


def test_a_class_list_decides(tmp_path):
    write_pictures(tmp_path, ["cat/a.png", "dog/b.png"])
    (tmp_path / "classes.txt").write_text("bird\ndog\ncat\n")
    source = open_x(tmp_path, classes=3)
    order = colours(source)
    assert source.labels() == [[2, 1][index] for index in order]
    (tmp_path / "classes.txt").write_text("bird\ndog\n")
    with pytest.raises(UsageError, match="'cat'"):
        open_x(tmp_path, classes=3)


def test_labels_leave_broken_files_out(tmp_path):
    write_pictures(tmp_path, ["0/a.png", "1/b.png", "1/c.png"])
    (tmp_path / "0" / "broken.png").write_bytes(b"")
    source = open_x(tmp_path, classes=2)
    order = colours(source)
    assert source.labels() == [[0, 1, 1][index] for index in order]


def test_a_uint8_input_needs_no_preprocessing(tmp_path):
    write_pictures(tmp_path, ["a.png"], value=200)
    camera = TensorSpec(name="image", dtype="uint8", shape=("batch", 4, 4, 3))
    (feeds,) = open_samples(str(tmp_path), inputs=[camera], preprocessing=None).samples()
    assert feeds["image"].dtype == np.uint8
    assert feeds["image"][0, 0, 0].tolist() == [200, 0, 0]


def test_pictures_for_a_float_input_that_nobody_described_are_refused(tmp_path):
    write_pictures(tmp_path, ["a.png"])
    with pytest.raises(UsageError, match=r"'x'.*preprocessing"):
        open_samples(str(tmp_path), inputs=[X], preprocessing=None)


def test_pictures_alone_do_not_feed_two_inputs(tmp_path):
    write_pictures(tmp_path, ["a.png"])
    other = TensorSpec(name="scale", dtype="float32", shape=("batch", 1))
    with pytest.raises(UsageError, match="scale"):
        open_samples(str(tmp_path), inputs=[X, other], preprocessing=HOW)


@pytest.mark.parametrize("data", ["pictures", "builtin:photos"])
def test_a_fixed_batch_takes_several_pictures(tmp_path, monkeypatch, data):
    write_pictures(tmp_path / "pictures", [f"{index % 2}/{index}.png" for index in range(7)])
    monkeypatch.chdir(tmp_path)
    fixed = TensorSpec(name="x", dtype="float32", shape=(3, 3, 8, 8))
    source = open_samples(data, inputs=[fixed], preprocessing=HOW, classes=2)
    fed = list(itertools.islice(source.samples(), 2))
    assert [feeds["x"].shape for feeds in fed] == [(3, 3, 8, 8)] * 2
    assert not np.array_equal(fed[0]["x"][0], fed[0]["x"][1])
    assert source.labels() is None


# Data that is not there


@pytest.mark.parametrize(
    ("name", "said"),
    [("empty", "no image"), ("texts", "1 × .txt"), ("missing", "not found"), ("one.txt", "one.txt")],
)
def test_no_data_says_what_was_looked_for(tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    (tmp_path / "one.txt").write_text("one")
    with pytest.raises(UsageError, match=said) as caught:
        open_samples(str(tmp_path / name), inputs=[X], preprocessing=None)
    assert name in str(caught.value)


def test_unknown_built_in_data():
    with pytest.raises(UsageError, match="builtin:photos"):
        open_x("builtin:pictures")


# Arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_an_archive(tmp_path, save, order):
    array = np.arange(5 * 192, dtype=np.float64).reshape(5, 3, 8, 8)
    save(tmp_path / "a.npz", x=np.asarray(array, order=order))
    source = open_x(tmp_path / "a.npz")
    for _ in range(2):
        fed = [feeds["x"] for feeds in source.samples()]
        assert {feed.shape for feed in fed} == {(1, 3, 8, 8)}
        np.testing.assert_array_equal(np.concatenate(fed), array.astype(np.float32))


def test_a_lone_array_needs_no_name(tmp_path):
    array = np.ones((4, 3, 8, 8), np.float32)
    np.savez(tmp_path / "a.npz", array)
    np.save(tmp_path / "b.npy", array)
    assert len(open_x(tmp_path / "a.npz")) == len(open_x(tmp_path / "b.npy")) == 4


def test_a_folder_of_arrays(tmp_path):
    for index in range(3):
        np.savez(tmp_path / f"{index}.npz", x=np.full((2, 3, 8, 8), index, np.float32))
    assert colours(open_x(tmp_path)) == [0, 0, 1, 1, 2, 2]


def test_a_fixed_batch_takes_its_rows_together(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((9, 8), np.float32))
    fixed = TensorSpec(name="x", dtype="float32", shape=(4, 8))
    source = open_samples(str(tmp_path / "a.npz"), inputs=[fixed], preprocessing=None)
    assert [feeds["x"].shape for feeds in source.samples()] == [(4, 8), (4, 8)]


def test_one_row_may_be_a_whole_feed(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((7, 1, 8), np.float32), scale=np.arange(7, dtype=np.float32))
    inputs = [
        TensorSpec(name="x", dtype="float32", shape=(1, 8)),
        TensorSpec(name="scale", dtype="float32", shape=()),
    ]
    fed = list(open_samples(str(tmp_path / "a.npz"), inputs=inputs, preprocessing=None).samples())
    assert fed[3]["x"].shape == (1, 8)
    assert fed[3]["scale"].shape == ()
    assert fed[3]["scale"] == 3


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"picture": np.zeros((4, 3, 8, 8), np.float32)}, "picture.*'x'"),
        ({"x": np.zeros((4, 8, 8, 3), np.float32)}, "shape.*3, 8, 8"),
        ({"x": np.zeros((3, 8, 8), np.float32)}, "shape.*3, 8, 8"),
        ({"x": np.zeros((0, 3, 8, 8), np.float32)}, "no samples"),
        ({"x": np.zeros((4, 3, 8, 8), np.complex64)}, "complex64"),
        ({"x": np.array([{"a": 1}, None], dtype=object)}, "objects.*pickle"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError, match=said):
        open_x(tmp_path / "a.npz")


def test_arrays_of_different_length_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", ids=np.zeros((4, 5), np.int64), mask=np.zeros((3, 5), np.int64))
    with pytest.raises(UsageError, match=r"\[3, 4\]"):
        open_samples(str(tmp_path / "a.npz"), inputs=IDS, preprocessing=None)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_values_that_are_no_numbers_are_refused(tmp_path, bad):
    array = np.zeros((4, 3, 8, 8))
    array[2, 0, 0, 0] = bad
    np.savez(tmp_path / "a.npz", x=array)
    with pytest.raises(UsageError, match=r"row 2.*'x'"):
        list(open_x(tmp_path / "a.npz").samples())


def test_a_whole_number_that_does_not_fit_is_refused(tmp_path):
    small = TensorSpec(name="ids", dtype="int32", shape=("batch", 2))
    np.savez(tmp_path / "a.npz", ids=np.array([[1, 2], [3, 1 << 40]]))
    with pytest.raises(UsageError, match="int32"):
        list(open_samples(str(tmp_path / "a.npz"), inputs=[small], preprocessing=None).samples())


@pytest.mark.parametrize("keep", [10, 0.5, 0.9])
def test_a_damaged_archive_is_named(tmp_path, keep):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random((40, 3, 8, 8)))
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    with pytest.raises(UsageError, match=r"a\.npz"):
        list(open_x(path).samples())


def test_memory_does_not_grow_with_the_archive(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((4000, 3, 8, 64), np.float32))
    wide = TensorSpec(name="x", dtype="float32", shape=("batch", 3, 8, 64))
    source = open_samples(str(tmp_path / "a.npz"), inputs=[wide], preprocessing=None)
    tracemalloc.start()
    assert sum(1 for _ in source.samples()) == 4000
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 3_000_000  # The array is 24.6 MB.


# The user's function

FUNCTIONS = """
import numpy as np

def dicts():
    for index in range(6):
        yield {"x": np.full((1, 3, 8, 8), index)}

def batches():
    return [np.full((4, 3, 8, 8), 1.0), np.full((2, 3, 8, 8), 2.0)]

def endless():
    while True:
        yield np.zeros((1, 3, 8, 8))

def wrong():
    yield {"y": np.zeros((1, 3, 8, 8))}

def failing():
    yield np.zeros((1, 3, 8, 8))
    raise RuntimeError("disk gone")

def nothing():
    return []
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "my_samples_module.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    return "my_samples_module"


def test_a_function_is_called_anew_each_time(functions):
    source = open_x(f"{functions}:dicts")
    assert colours(source) == colours(source) == [0, 1, 2, 3, 4, 5]
    assert len(source) == 6


def test_a_function_in_a_file(functions, tmp_path):
    assert colours(open_x(f"{tmp_path}/{functions}.py:batches")) == [1, 1, 1, 1, 2, 2]


def test_an_endless_function_is_cut(functions):
    source = open_x(f"{functions}:endless")
    assert len(list(itertools.islice(source.samples(), 3))) == 3
    assert len(source) == 10_000


def test_a_split_of_a_function_is_disjoint(functions, monkeypatch):
    monkeypatch.setattr("deploykit.precision.calib_data.FEWEST_HELD_OUT", 2)
    calibration, held_out = split(open_x(f"{functions}:dicts"), 4, 2)
    assert sorted(colours(calibration) + colours(held_out)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "said"),
    [("wrong", "'x'"), ("failing", "RuntimeError: disk gone"), ("nothing", "nothing"), ("dict", "dicts")],
)
def test_functions_that_do_not_work(functions, name, said):
    with pytest.raises(UsageError, match=said):
        open_x(f"{functions}:{name}")


def test_a_module_that_is_not_there(functions):
    with pytest.raises(UsageError, match="no_such_module"):
        open_x("no_such_module:f")


# Built-in photographs and noise


def test_photographs_are_the_same_each_time_and_differ_by_seed():
    first = data_digest(open_x("builtin:photos"), 4)
    assert data_digest(open_x("builtin:photos"), 4) == first
    assert data_digest(open_x("builtin:photos", seed=1), 4) != first


def test_no_photograph_serves_both_calibration_and_judging():
    calibration, held_out = split(open_x("builtin:photos"), 32, 16)
    used = [
        {part.name_of(item).split("#")[0] for item in itertools.islice(part.items, 40)}
        for part in (calibration, held_out)
    ]
    assert used[0] == set(builtin_photos.CALIBRATION_PHOTOS)
    assert used[1] == set(builtin_photos.JUDGING_PHOTOS)
    assert not used[0] & used[1]
    assert len(list(calibration.samples())) == 32
    assert len({data_digest(part, 8) for part in (calibration, held_out)}) == 2


def test_random_is_marked_and_repeatable():
    source = open_x("random")
    assert source.made_up
    assert data_digest(source, 3) == data_digest(open_x("random"), 3)
    assert abs(next(source.samples())["x"].std() - 1) < 0.2


def test_random_ids_need_a_range():
    with pytest.raises(UsageError, match=r"'ids'.*calibration data"):
        open_samples("random", inputs=IDS, preprocessing=None)


def test_random_ids_stay_in_their_range():
    ids = TensorSpec(name="ids", dtype="int64", shape=("batch", 200))
    feeds = next(open_samples("random:ids=3..5", inputs=[ids], preprocessing=None).samples())
    assert set(feeds["ids"].ravel()) == {3, 4, 5}


@pytest.mark.parametrize("text", ["random:ids", "random:ids=5..3", "random:idz=0..3", "random:ids=a..b"])
def test_ranges_that_are_not_understood(text):
    ids = TensorSpec(name="ids", dtype="int64", shape=("batch", 4))
    with pytest.raises(UsageError, match="random:"):
        open_samples(text, inputs=[ids], preprocessing=None)


def test_random_needs_closed_dimensions():
    with pytest.raises(UsageError, match="open dimensions"):
        open_samples("random:ids=0..3,mask=0..1", inputs=IDS, preprocessing=None)


# Split and digest


@pytest.mark.parametrize(
    ("have", "want", "got", "shared"),
    [
        (30, (10, 10), (10, 10), False),
        (20, (10, 10), (10, 10), False),
        (18, (10, 10), (10, 8), False),
        (12, (10, 10), (10, 10), True),
        (5, (10, 10), (5, 5), True),
    ],
)
def test_split(tmp_path, have, want, got, shared):
    write_pictures(tmp_path, [f"{index}.png" for index in range(have)])
    calibration, held_out = split(open_x(tmp_path), *want)
    first, second = colours(calibration), colours(held_out)
    assert (len(first), len(second)) == got
    assert bool(set(first) & set(second)) == shared
    assert ("calibrated on" in held_out.description) == shared


def test_spare_pictures_stand_in_for_broken_ones(tmp_path):
    write_pictures(tmp_path, [f"{index}.png" for index in range(40)])
    for index in range(0, 40, 4):
        (tmp_path / f"{index}.png").write_bytes(b"")
    calibration, held_out = split(open_x(tmp_path), 12, 8)
    first, second = colours(calibration), colours(held_out)
    assert (len(first), len(second)) == (12, 8)
    assert not set(first) & set(second)
    assert not set(calibration.skipped) & set(held_out.skipped)


def test_arrays_are_split_across_the_whole_file(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.broadcast_to(np.arange(100.0).reshape(-1, 1, 1, 1), (100, 3, 8, 8)))
    calibration, held_out = split(open_x(tmp_path / "a.npz"), 20, 20)
    rows = colours(calibration)
    assert rows == sorted(rows)
    assert rows[0] < 20
    assert rows[-1] >= 80
    assert not set(rows) & set(colours(held_out))


def test_the_digest_is_of_what_is_fed(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros((4, 3, 8, 8), np.float64))
    array = np.zeros((4, 3, 8, 8), np.float32)
    array[3] = 1
    np.savez(tmp_path / "c.npz", x=array)
    digests = [data_digest(open_x(tmp_path / f"{name}.npz"), 4) for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    assert data_digest(open_x(tmp_path / "c.npz"), 3) != digests[0]
