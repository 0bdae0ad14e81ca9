"""Pruning inside Lightning's Trainer is the plain loop, to the bit; what is left of the epochs is plain training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rbprune
from rbprune.errors import CheckpointError
from rbprune.integrations.state import take_state
from tests.integrations.small import data, fresh, hooks_on, loader, plain_loop, trained
from tests.integrations.small_lightning import EPOCHS, QUIET, Lit, Seeded, fit, pruning, trainer

import lightning.pytorch as pl  # isort: skip - after rbprune, which mends torchvision first
import pytorch_lightning  # isort: skip

pytestmark = [
    *(pytest.mark.filterwarnings(f"ignore:.*{message}") for message in QUIET),
    pytest.mark.filterwarnings("ignore:the stages may take"),
]


def test_the_order_of_the_data_is_as_without_it() -> None:
    class Noting(Lit):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            seen.append(batch[0].sum().item())
            return super().training_step(batch, batch_idx)

    orders = []
    for callbacks in ([pruning(method="uniform", macs_ratio=2)], []):
        seen: list[float] = []
        torch.manual_seed(3)
        batches = torch.utils.data.DataLoader(data(), 64, shuffle=True)
        trainer(*callbacks, epochs=2).fit(Noting(trained()), batches)
        orders.append(seen)
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 8


@pytest.mark.parametrize(
    "settings", [{}, {"rates": "adam", "rate_lr": 0.1, "confidence": 0}, {"method": "ibp", "macs_ratio": 2}], ids=str
)
def test_it_is_the_plain_loop(settings: dict[str, Any]) -> None:
    callback, by_lightning, by_hand = pruning(**settings), trained(), trained()
    expected = plain_loop(by_hand, **settings)
    fit(by_lightning, callback)
    assert callback.is_done
    assert [result.channels for result in callback.results] == [result.channels for result in expected]
    for found, wanted in zip(callback.results, expected, strict=True):
        assert all(torch.equal(found.values[name], wanted.values[name]) for name in wanted.values)
        assert found.cut == wanted.cut
    assert sum(after for result in expected for _, after in result.channels.values()) < 22


def test_what_is_left_of_the_epochs_is_plain_training_with_an_optimizer_that_followed() -> None:
    net, callback = trained(), pruning(method="uniform", macs_ratio=2)
    found = fit(net, callback, epochs=2)
    state = found.optimizers[0].state
    assert callback.is_done
    assert callback.stages is not None
    assert callback.stages.ratios()["macs"] > 1.8
    assert all(state[parameter]["exp_avg"].shape == parameter.shape for parameter in net.parameters())
    assert hooks_on(net) == 0


def test_the_other_name_of_lightning_takes_it_too() -> None:
    class Other(pytorch_lightning.LightningModule):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        training_step = Lit.training_step
        configure_optimizers = Lit.configure_optimizers

    net, same = trained(), trained()
    callback, other = pruning(), pruning()
    trainer(other, Seeded(), module=pytorch_lightning).fit(Other(net), loader())
    fit(same, callback)
    assert [result.channels for result in other.results] == [result.channels for result in callback.results]
    assert other.is_done


def test_half_precision_of_the_kind_that_needs_no_scaling() -> None:
    net, callback = trained(), pruning()
    fit(net, callback, precision="bf16-mixed")
    assert callback.is_done
    assert all(p.dtype == torch.float32 for p in net.parameters())


def test_a_checkpoint_brings_its_cuts_and_goes_on(tmp_path: Path) -> None:
    first, callback = trained(), pruning()
    with pytest.warns(UserWarning, match="training ended after 8 steps of stage 2 of 2"):
        began = fit(first, callback, epochs=12)  # the first stage is over after 40 steps
    file = tmp_path / "middle.ckpt"
    began.save_checkpoint(file)
    assert callback.stages is not None
    assert callback.stages.number == 1

    second, again, seen = fresh(), pruning(), {}

    class AtStart(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            seen.update({name: tensor.clone() for name, tensor in second.state_dict().items()})

    goes_on = trainer(again, AtStart(), epochs=EPOCHS)
    goes_on.fit(Lit(second), loader(), ckpt_path=file)
    assert all(torch.equal(seen[name], tensor) for name, tensor in first.state_dict().items())
    assert again.is_done
    assert list(again.results[0].channels) == ["3"]  # the first stage is not done twice
    assert again.stages is not None
    assert take_state(again.stages)["sites"]["0"] == take_state(callback.stages)["sites"]["0"]
    assert again.stages.dense == callback.stages.dense
    assert again.stages.pruner.dense_measures is not None
    assert take_state(again.stages)["dense"][0] == take_state(callback.stages)["dense"][0]


def test_a_checkpoint_without_cuts_is_refused(tmp_path: Path) -> None:
    plain = trainer(epochs=1)
    plain.fit(Lit(trained()), loader())
    plain.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(CheckpointError, match="written without PruningCallback"):
        trainer(pruning(), epochs=2).fit(Lit(fresh()), loader(), ckpt_path=tmp_path / "plain.ckpt")


def test_the_pruned_network_can_be_saved_and_loaded(tmp_path: Path) -> None:
    net, callback = trained(), pruning(method="uniform", macs_ratio=2)
    fit(net, callback, epochs=1)
    callback.save(tmp_path / "pruned")
    again = rbprune.load(tmp_path / "pruned", fresh())
    assert torch.equal(again.eval()(data().tensors[0]), net.eval()(data().tensors[0]))


def test_training_that_ends_too_early_is_told_and_leaves_no_noise() -> None:
    net, callback = trained(), pruning()
    with pytest.warns(UserWarning, match=r"training ended after 4 steps of stage 1 of 2: the noise is off.*'0'|of 0 "):
        fit(net, callback, epochs=1)
    assert not callback.is_done
    assert hooks_on(net) == 0


@pytest.mark.filterwarnings("default:the stages may take")
def test_too_few_epochs_are_told_before_training() -> None:
    with (
        pytest.warns(UserWarning, match="may take 80 training steps, and Trainer makes 4"),
        pytest.warns(UserWarning, match="training ended"),
    ):
        fit(trained(), pruning(), epochs=1)


def test_another_loss_than_the_one_that_is_trained_is_told() -> None:
    class Doubled(Lit):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return 2 * super().training_step(batch, batch_idx)

    with pytest.warns(UserWarning, match="the training loss is .* and loss_fn gives"):
        trainer(pruning(), epochs=20).fit(Doubled(trained()), loader())
