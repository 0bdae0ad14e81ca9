"""What rbprune.prune and rbprune.load refuse, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import rbprune
from rbprune.errors import ConfigError, DataError, ModelError, NumericalError
from tests.networks import stripes, tiny_cnn
from tests.test_api import OPTIONS, loader, quiet, trained


def test_a_model_without_anything_to_train_is_refused() -> None:
    with pytest.raises(ModelError, match="no parameter of the model can be trained"):
        rbprune.prune(
            tiny_cnn().requires_grad_(False), loader(64), example_inputs=stripes(2)[0], options=OPTIONS, console=quiet()
        )


def test_inputs_that_do_not_fit_are_still_told_by_the_trace() -> None:
    with pytest.raises(rbprune.errors.RbpruneError, match="example_inputs"):
        rbprune.prune(tiny_cnn(), loader(64), example_inputs=torch.zeros(2, 7, 8, 8), console=quiet())


class Shrinking:
    """Promises three batches, and gives one fewer each time."""

    def __init__(self) -> None:
        self.left = 5  # begun once for the check of the dense network, then for every epoch

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self.left -= 1
        return iter([stripes(8)] * self.left)


def test_loaders_that_cannot_be_repeated_are_refused() -> None:
    x, _ = stripes(8)
    with pytest.raises(DataError, match="generator that can be read only once"):
        rbprune.prune(tiny_cnn(), (stripes(8) for _ in range(3)), example_inputs=x, dataset_size=24, console=quiet())
    model = tiny_cnn()
    with pytest.raises(DataError, match=r"epoch 2 \(prune\) ended after 2 batches, but the loader has 3"):
        rbprune.prune(model, Shrinking(), example_inputs=x, dataset_size=24, options=OPTIONS, console=quiet())
    assert not any(module._forward_pre_hooks for module in model.modules()), "the noise is off after an error"


def test_bad_input_is_named() -> None:
    x, y = stripes(64)
    with pytest.raises(ModelError, match="fails on the example inputs"):
        rbprune.prune(tiny_cnn(), loader(64), example_inputs=torch.zeros(1, 9), console=quiet())
    with pytest.raises(DataError, match="yields no batch"):
        rbprune.prune(tiny_cnn(), [], example_inputs=x[:2], console=quiet())
    with pytest.raises(
        DataError, match=r"training batch 0 has label 7, but the model has 3 outputs .*; correct the labels"
    ):
        rbprune.prune(tiny_cnn(), [(x, torch.full_like(y, 7))], example_inputs=x[:2], console=quiet())
    bad = x.clone()
    bad[3] = float("nan")
    with pytest.raises(NumericalError, match="training batch 1 contains NaN or infinity in its input; clean the data"):
        rbprune.prune(tiny_cnn(), [(x, y), (bad, y)], example_inputs=x[:2], console=quiet())
    with pytest.raises(ConfigError, match="finetune.epoch: unknown key; did you mean 'epochs'"):
        rbprune.prune(tiny_cnn(), [(x, y)], example_inputs=x[:2], options=["finetune.epoch=1"], console=quiet())
    with pytest.raises(ConfigError, match="unknown method 'rpb'; did you mean 'rbp'"):
        rbprune.prune(tiny_cnn(), [(x, y)], example_inputs=x[:2], method="rpb", console=quiet())


def test_weights_that_cannot_be_read_leave_the_model_whole(tmp_path: Path) -> None:
    x = stripes(2)[0]
    result = rbprune.prune(trained(), loader(256), example_inputs=x, options=OPTIONS, console=quiet())
    folder = result.save(tmp_path / "out")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-10])
    fresh = tiny_cnn()
    with pytest.raises(ModelError, match="cannot be read"):
        rbprune.load(folder, fresh)
    assert [p.shape for p in fresh.parameters()] == [p.shape for p in tiny_cnn().parameters()]
    (folder / "model.safetensors").write_bytes(whole)
    assert torch.equal(rbprune.load(folder, fresh).eval()(x), result.model.eval()(x))


def test_loading_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no plan\.json: it is no finished run"):
        rbprune.load(tmp_path, tiny_cnn())
    result = rbprune.prune(tiny_cnn(), loader(64), example_inputs=stripes(2)[0], options=OPTIONS, console=quiet())
    result.save(tmp_path / "run")
    with pytest.raises(ModelError, match="position|does not fit"):
        rbprune.load(tmp_path / "run", tiny_cnn(3))
    (tmp_path / "run" / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(ModelError, match="cannot be read"):
        rbprune.load(tmp_path / "run", tiny_cnn())
