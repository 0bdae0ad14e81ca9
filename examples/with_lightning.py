"""Prune inside PyTorch Lightning: your LightningModule stays as it is, a callback is added to the Trainer.

python examples/with_lightning.py      (some seconds; pip install 'rbprune[lightning]')
"""

import logging
import tempfile
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbprune
from rbprune import data
from rbprune.integrations.lightning import PruningCallback

import lightning.pytorch as pl  # isort: skip - or: import pytorch_lightning as pl


class Digits(pl.LightningModule):
    """Any LightningModule with automatic optimisation and one optimizer."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def trainer(steps: int, *callbacks: pl.Callback) -> pl.Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return pl.Trainer(
        max_steps=steps, callbacks=list(callbacks), accelerator="cpu", enable_model_summary=False, **quiet
    )


def loader(part: data.source.Source, count: int) -> torch.utils.data.DataLoader[tuple[Tensor, ...]]:
    images, labels = next(iter(part.batches(torch.arange(count), count, seed=0, augment=False)))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=64, shuffle=True)


def main() -> None:
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    pl.seed_everything(0, verbose=False)
    digits = data.load("mnist-subset")
    batches, net = loader(digits.train, 2048), rbprune.models.build("lenet5")
    example = next(iter(batches))[0][:2]
    trainer(120).fit(Digits(net), batches)  # a trained network to start from

    pruning = PruningCallback(example, loss_fn=F.cross_entropy, method="ibp", macs_ratio=2, steps=50)
    trainer(80, pruning).fit(Digits(net), batches)  # the stage, the cut, and what is left is recovery
    print({name: pair for result in pruning.results for name, pair in result.channels.items()})
    assert pruning.stages is not None
    print(f"{pruning.stages.ratios()['macs']:.2f} times fewer MACs; pruning is over: {pruning.is_done}")

    with tempfile.TemporaryDirectory() as folder:
        pruning.save(f"{folder}/pruned")
        again = rbprune.load(f"{folder}/pruned", rbprune.models.build("lenet5"))  # an instance of the same class
        assert torch.equal(again.eval()(example), net.eval()(example))


if __name__ == "__main__":
    main()
