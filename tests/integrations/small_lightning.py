"""A user's LightningModule, and a quiet Trainer for it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.integrations.lightning import PruningCallback
from tests.integrations.small import SEED, STEPS, data, loader

import lightning.pytorch as pl  # isort: skip - after rbprune, which mends torchvision first

QUIET = ("does not have many workers", "LeafSpec", "logging interval")
"""What Lightning warns of in every small training."""
EPOCHS = 24


class Lit(pl.LightningModule):
    """What a user has, unchanged."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, labels = batch
        return F.cross_entropy(self.net(inputs), labels)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


class Seeded(pl.Callback):
    """Sets the generator as the plain loop does, after the pruning callback has begun."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        torch.manual_seed(SEED)


def pruning(**settings: Any) -> PruningCallback:
    return PruningCallback(data().tensors[0][:2], **{"loss_fn": F.cross_entropy, "steps": STEPS, **settings})


def trainer(*callbacks: Any, module: Any = pl, epochs: int = EPOCHS, **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    options = {**quiet, "enable_checkpointing": False, "max_epochs": epochs, **options}
    return module.Trainer(callbacks=list(callbacks), **options)


def fit(net: nn.Module, callback: PruningCallback, **options: Any) -> Any:
    found = trainer(callback, Seeded(), **options)
    found.fit(Lit(net), loader())
    return found
