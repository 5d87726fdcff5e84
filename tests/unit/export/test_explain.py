from pathlib import Path

from deploykit.export.explain import Line, explained, guard_line, user_line

USER = 'File "/home/u/net.py", line 7, in forward'


def test_the_innermost_line_that_is_the_users() -> None:
    text = f'File "/home/u/main.py", line 1\n{USER}\nFile "/env/site-packages/torch/nn/linear.py", line 9, in forward'
    assert user_line(ValueError(), text) == Line("/home/u/net.py", 7)
    assert user_line(ValueError(), 'File "/env/torch/nn/linear.py", line 9, in forward') is None


def test_a_guards_cut_path_is_completed_from_the_modules_files() -> None:
    log = ["create_env", "eval Eq(s40, 2) [guard added] (ome/u/net.py:16 in forward), for more info run"]
    assert guard_line(log, [Path("/home/u/other.py"), Path("/home/u/net.py")]) == Line("/home/u/net.py", 16)
    assert guard_line(["eval Eq(s1, 2) [guard added] (_export/non_strict_utils.py:9 in f)"], []) is None


def test_an_operator_without_onnx_form_is_named_with_its_line() -> None:
    message = f"No ONNX function found for <OpOverload(op='aten.fft_fft', overload='default')>\n{USER}"
    text = str(explained(RuntimeError(message), [], [], "net"))
    assert "aten.fft_fft" in text
    assert "/home/u/net.py:7" in text


def test_anything_else_is_one_line_of_the_root_cause() -> None:
    try:
        try:
            raise KeyError("first cause\nsecond line")
        except KeyError as cause:
            raise RuntimeError("pages\nof\ninternals") from cause
    except RuntimeError as error:
        text = str(explained(error, [], [], "net"))
    assert "first cause" in text
    assert "internals" not in text
    assert "\n" not in text
