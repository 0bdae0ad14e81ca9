"""Prune inside the Trainer of Hugging Face transformers: model and Trainer stay as they are, a callback is added.

python examples/with_transformers.py      (some seconds; pip install 'rbprune[transformers]')
"""

import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import rbprune
from rbprune import data
from rbprune.integrations.transformers import PruningTrainerCallback

from transformers import (  # isort: skip - after rbprune, which imports torchvision safely
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainingArguments,
)

CONFIG = ResNetConfig(
    num_channels=1, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=10
)


class Digits(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Batches of dictionaries, as transformers wants them."""

    def __init__(self, count: int) -> None:
        part = data.load("mnist-subset").train
        self.images, self.labels = next(iter(part.batches(torch.arange(count), count, seed=0, augment=False)))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def train(model: Any, digits: Digits, steps: int, folder: str, *callbacks: Any) -> None:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=64,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    Trainer(model, arguments, train_dataset=digits, callbacks=list(callbacks)).train()


def main() -> None:
    torch.manual_seed(0)
    digits, model = Digits(1024), ResNetForImageClassification(CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        train(model, digits, 120, folder)  # a trained network to start from
        pruning = PruningTrainerCallback(
            {"pixel_values": digits.images[:2]}, loss_fn=F.cross_entropy, method="ibp", macs_ratio=2, steps=50
        )
        train(model, digits, 90, folder, pruning)  # the stage, the cut, and what is left is recovery
        assert pruning.stages is not None
        print(f"{pruning.stages.ratios()['macs']:.2f} times fewer MACs; pruning is over: {pruning.is_done}")

        pruning.save(f"{folder}/pruned")
        again = rbprune.load(f"{folder}/pruned", ResNetForImageClassification(CONFIG))
        example = digits.images[:2]
        assert torch.equal(again.eval()(example).logits, model.eval()(example).logits)


if __name__ == "__main__":
    main()
