from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from deploykit.base.errors import UsageError
from deploykit.sources.weights import digest_of_state, load_weights_file, require_reachable, unwrapped


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))


def wanted() -> dict[str, torch.Tensor]:
    module = net()
    for parameter in module.parameters():
        nn.init.constant_(parameter, 0.5)
    return module.state_dict()


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_a_state_dict_is_loaded_from_what_people_have(tmp_path: Path, wrapper: str | None, prefix: str) -> None:
    state: dict[str, object] = {prefix + key: value for key, value in wanted().items()}
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, tmp_path / "w.pth")
    module = net()
    load_weights_file(module, tmp_path / "w.pth")
    assert digest_of_state(module) == digest_of_state(_with(wanted()))


def _with(state: dict[str, torch.Tensor]) -> nn.Module:
    module = net()
    module.load_state_dict(state)
    return module


def test_safetensors_are_loaded(tmp_path: Path) -> None:
    save_file(wanted(), tmp_path / "w.safetensors")
    module = net()
    load_weights_file(module, tmp_path / "w.safetensors")
    assert module[0].weight.flatten().tolist() == [0.5, 0.5]


def test_keys_that_do_not_fit_are_named(tmp_path: Path) -> None:
    state = wanted()
    state["9.weight"] = state.pop("0.weight")
    state["1.bias"] = torch.zeros(3)
    torch.save(state, tmp_path / "w.pth")
    module = net()
    before = digest_of_state(module)
    with pytest.raises(
        UsageError, match=r"1 missing: 0\.weight; 1 unexpected: 9\.weight; 1 of another shape: 1\.bias is \(3,\)"
    ):
        load_weights_file(module, tmp_path / "w.pth")
    assert digest_of_state(module) == before


def test_an_old_file_without_batch_counts_loads(tmp_path: Path) -> None:
    torch.save({key: value for key, value in wanted().items() if "num_batches" not in key}, tmp_path / "w.pth")
    load_weights_file(net(), tmp_path / "w.pth")


def test_a_pickle_with_code_is_refused_with_what_it_would_import(tmp_path: Path) -> None:
    torch.save(net(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"pickle that runs code.*imports torch\.nn.*refused.*safetensors"):
        load_weights_file(net(), tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "an empty file"), (b"<html>", "an HTML page"), (b"hello", "a text file")]
)
def test_no_weights_file_is_told_for_what_it_is(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "w").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        load_weights_file(net(), tmp_path / "w")


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    save_file(wanted(), tmp_path / "w.safetensors")
    data = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "w.safetensors").write_bytes(data[:-20])
    with pytest.raises(UsageError, match="damaged safetensors"):
        load_weights_file(net(), tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match="no such file"):
        load_weights_file(net(), tmp_path / "absent.pth")


def test_a_prefix_that_the_model_has_itself_stays() -> None:
    state = {"model.weight": torch.zeros(1)}
    assert unwrapped(state, {"model.weight"}) == state


def test_a_digest_sees_values_names_and_types() -> None:
    states = [wanted(), {**wanted(), "0.weight": wanted()["0.weight"] * 2}]
    digests = {digest_of_state(_with(state)) for state in states}
    digests.add(digest_of_state(_with(wanted()).half()))
    assert len(digests) == 3


def test_a_host_that_does_not_answer_is_told_in_seconds() -> None:
    with pytest.raises(UsageError, match=r"localhost:9 cannot be reached.*--weights FILE, or --weights none"):
        require_reachable("http://localhost:9/weights.pth", "resnet50")
