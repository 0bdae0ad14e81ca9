from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rbprune.errors import ModelError
from rbprune.models import build, load_weights


def test_saved_weights_are_loaded(tmp_path: Path) -> None:
    saved, file = build("resnet20-cifar"), tmp_path / "w.safetensors"
    save_file(saved.state_dict(), file)
    loaded = build("resnet20-cifar", weights=file)
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True))


def test_batch_counters_may_be_absent(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    state = build("resnet20-cifar").state_dict()
    save_file({k: v for k, v in state.items() if "num_batches" not in k}, file)
    load_weights(build("resnet20-cifar"), str(file))


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin"])
def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"w{ending}"
    torch.save(build("lenet5").state_dict(), file)
    with pytest.raises(ModelError, match=r"can run any code; convert it.*save_file\(model\.state_dict\(\)"):
        build("lenet5", weights=file)


def test_every_kind_of_mismatch_is_listed(tmp_path: Path) -> None:
    state = build("lenet5", classes=3).state_dict()
    state["extra"] = torch.zeros(1)
    del state["conv1.bias"]
    save_file(state, tmp_path / "w.safetensors")
    model = build("lenet5")
    before = model.conv1.weight.clone()  # type: ignore[union-attr,operator]
    with pytest.raises(ModelError) as caught:
        load_weights(model, tmp_path / "w.safetensors")
    for part in (
        "do not fit LeNet5",
        "1 missing: conv1.bias",
        "1 unexpected: extra",
        "2 of another shape: fc2.weight [3, 500] (the model has [10, 500])",
    ):
        assert part in str(caught.value)
    assert torch.equal(model.conv1.weight, before), "nothing is loaded in part"  # type: ignore[union-attr,arg-type]


def test_only_the_first_few_are_listed(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match=r"8 missing: (\S+ ){5}\.\.\.; 1 unexpected: a;"):
        build("lenet5", weights=tmp_path / "w.safetensors")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no file '.*none\.safetensors'"):
        build("lenet5", weights=tmp_path / "none.safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"w\.safetensors': not a readable safetensors file"):
        build("lenet5", weights=tmp_path / "w.safetensors")
