"""What pruning inside Lightning's Trainer cannot do is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import ConfigError, DataError, LoopError
from rbprune.integrations.lightning import _check_trainer, _only_optimizer
from tests.integrations.small import hooks_on, loader, trained
from tests.integrations.small_lightning import QUIET, Lit, fit, pruning, trainer

import lightning.pytorch as pl  # isort: skip - after rbprune, which mends torchvision first

pytestmark = [
    *(pytest.mark.filterwarnings(f"ignore:.*{message}") for message in QUIET),
    pytest.mark.filterwarnings("ignore:the stages may take"),
]


class Manual(Lit):
    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.automatic_optimization = False


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (Manual, {}, "automatic_optimization=False"),
        (Lit, {"strategy": "ddp", "devices": 2}, "DDPStrategy with 2 processes"),
        (Lit, {"precision": "bf16-true"}, "precision='bf16-true'"),
        (Lit, {"accumulate_grad_batches": 2}, "accumulate_grad_batches=2"),
        (Lit, {"callbacks": [pl.callbacks.StochasticWeightAveraging(1e-3)]}, "StochasticWeightAveraging"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused_before_anything_is_trained(module: type[Lit], options: Any, message: str) -> None:
    callbacks = options.pop("callbacks", [])
    with pytest.raises(ConfigError, match=message):
        _check_trainer(trainer(pruning(), *callbacks, **options), module(trained()))


def test_two_optimizers_are_refused() -> None:
    found = trainer(pruning())
    found.strategy.optimizers = [torch.optim.SGD([p], lr=0.1) for p in list(trained().parameters())[:2]]
    with pytest.raises(ConfigError, match="needs one optimizer, and configure_optimizers returned 2"):
        _only_optimizer(found)


def test_a_module_that_the_training_step_does_not_call_is_refused() -> None:
    class ByForward(Lit):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            inputs, labels = batch
            return F.cross_entropy(self.net.forward(inputs), labels)

    net = trained()
    module = ByForward(net)
    with pytest.raises(LoopError, match="Sequential was not called in training and made no step in the last 1 batches"):
        trainer(pruning(), epochs=4).fit(module, loader())
    assert hooks_on(net) == 0
    assert "on_load_checkpoint" not in vars(module)


def test_the_network_is_found_by_name() -> None:
    class Wrapped(Lit):
        def __init__(self, net: nn.Module) -> None:
            super().__init__(net)
            self.other = nn.Linear(1, 1)

    callback = pruning(method="uniform", macs_ratio=2, network="net")
    trainer(callback, epochs=1).fit(Wrapped(net := trained()), loader())
    assert callback.stages is not None
    assert callback.stages.model is net
    with pytest.raises(ConfigError, match="network='nett': Wrapped has no such module; its children are 'net', 'o"):
        trainer(pruning(network="nett"), epochs=1).fit(Wrapped(trained()), loader())


def test_a_compiled_network_is_refused() -> None:
    net = trained()
    net[0].compile()
    with pytest.raises(ConfigError, match="0 was compiled by torch.compile"):
        trainer(pruning(), epochs=1).fit(Lit(net), loader())


class Stream(torch.utils.data.IterableDataset[Any]):
    """Batches that nobody has counted."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)


def test_a_batch_that_is_no_pair_is_refused_with_the_remedy() -> None:
    class Named(Lit):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return super().training_step((batch["x"], batch["y"]), batch_idx)

    batches = torch.utils.data.DataLoader(Stream([{"x": x, "y": y} for x, y in loader()]), batch_size=None)
    settings = {"dataset_size": 256, "method": "uniform", "macs_ratio": 2}
    with pytest.raises(DataError, match="is a dict of 2, not a pair.*unpack="):
        trainer(pruning(**settings), epochs=1).fit(Named(trained()), batches)
    callback = pruning(unpack=lambda batch: (batch["x"], batch["y"]), **settings)
    trainer(callback, epochs=1).fit(Named(trained()), batches)
    assert callback.is_done
    with pytest.raises(ConfigError, match="not known of this DataLoader; say it: dataset_size"):
        trainer(pruning(), epochs=1).fit(Named(trained()), batches)


def test_examples_that_lightning_leaves_out_are_asked_for() -> None:
    with pytest.raises(ConfigError, match="limit_train_batches=2.*dataset_size"):
        fit(trained(), pruning(), epochs=1, limit_train_batches=2)


def test_nothing_is_told_before_it_began() -> None:
    with pytest.raises(ConfigError, match="nothing has been pruned yet"):
        _ = pruning().plan
