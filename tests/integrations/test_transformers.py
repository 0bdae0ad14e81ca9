"""Pruning inside the Trainer of transformers is the plain loop, to the bit; what it cannot do is refused by name."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbprune
from rbprune.errors import CheckpointError, ConfigError, DataError
from rbprune.integrations.transformers import PruningTrainerCallback, _check_arguments, select_logits
from tests.integrations.small import BATCH, SEED, SIZE, STEPS, data, hooks_on

from transformers import (  # isort: skip - after rbprune, which mends torchvision first
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:the stages may take"),
    pytest.mark.filterwarnings("ignore:.*lr_scheduler.step"),
]
CONFIG = ResNetConfig(
    num_channels=1, embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", num_labels=3
)
EPOCHS = 21
TWO = [f"resnet.encoder.stages.{number}.layers.0.layer.0.convolution" for number in (0, 1)]
"""The sites of two stages."""


class Pictures(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        images, self.labels = data().tensors
        self.images = F.interpolate(images, scale_factor=3)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


PICTURES = Pictures()


def fresh() -> nn.Module:
    return ResNetForImageClassification(CONFIG)


@lru_cache
def _trained() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fresh().train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for first in list(range(0, SIZE, BATCH)) * 15:
            batch = slice(first, first + BATCH)
            optimizer.zero_grad()
            model(pixel_values=PICTURES.images[batch], labels=PICTURES.labels[batch]).loss.backward()
            optimizer.step()
    return model


def trained() -> nn.Module:
    return copy.deepcopy(_trained())


class Seeded(TrainerCallback):
    """Sets the generator before every step, as the plain loop does."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        torch.manual_seed(SEED + state.global_step)


def pruning(**settings: Any) -> PruningTrainerCallback:
    example = {"pixel_values": PICTURES.images[:2]}
    return PruningTrainerCallback(example, **{"loss_fn": F.cross_entropy, "steps": STEPS, **settings})


def trainer(model: nn.Module, folder: Path, *callbacks: Any, epochs: int = EPOCHS, **options: Any) -> Any:
    quiet = {"report_to": [], "save_strategy": "no", "logging_steps": 1000, "use_cpu": True, "disable_tqdm": True}
    options = {**quiet, "max_grad_norm": 0.0, "num_train_epochs": epochs, "learning_rate": 1e-3, **options}
    parts = {name: options.pop(name) for name in ("compute_loss_func", "data_collator") if name in options}
    arguments = TrainingArguments(output_dir=str(folder), per_device_train_batch_size=BATCH, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    made = {"optimizers": (optimizer, schedule), "train_dataset": PICTURES, **parts}
    return Trainer(model, arguments, callbacks=list(callbacks), **made)


class Noting:
    """Puts examples together, and remembers which."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Tensor]] = []

    def __call__(self, examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        self.batches.append({name: torch.stack([each[name] for each in examples]) for name in examples[0]})
        return self.batches[-1]


class Scores(nn.Module):
    """The same network with its scores alone, for the plain loop."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.inner(pixel_values=pixel_values).logits


def plain_loop(model: nn.Module, batches: list[dict[str, Tensor]], measured: int) -> list[Any]:
    scores, step, results = Scores(model), 0, []
    settings = {"dataset_size": SIZE, "loss_fn": F.cross_entropy, "only": [f"inner.{name}" for name in TWO]}
    pruner = rbprune.Pruner(scores, PICTURES.images[:2], **settings)
    pruner.measure((batch["pixel_values"], batch["labels"]) for batch in batches[:measured])
    optimizer, batches = torch.optim.Adam(model.parameters(), lr=2e-3), batches[measured:]
    for stage in pruner:
        for batch in stage.batches(batches[step:], STEPS):
            torch.manual_seed(SEED + step)
            loss = F.cross_entropy(scores(batch["pixel_values"]), batch["labels"]) + stage.kl()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        results.append(stage.finish(optimizer=optimizer))
    return results


def test_it_is_the_plain_loop(tmp_path: Path) -> None:
    collator, callback, model = Noting(), pruning(only=TWO), trained()
    trainer(model, tmp_path, callback, Seeded(), data_collator=collator).train()
    expected = plain_loop(trained(), collator.batches, measured=4)
    found = [{f"inner.{name}": pair for name, pair in result.channels.items()} for result in callback.results]
    assert callback.is_done
    assert found == [result.channels for result in expected]
    assert [result.cut for result in callback.results] == [result.cut for result in expected]
    assert any(after < before for result in expected for before, after in result.channels.values())
    assert hooks_on(model) == 0


def test_the_loss_may_be_computed_outside_of_the_model(tmp_path: Path) -> None:
    def outside(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        return F.cross_entropy(outputs["logits"], labels)

    found = []
    for options in ({}, {"compute_loss_func": outside}):
        callback = pruning(method="ibp", macs_ratio=1.5)
        trainer(trained(), tmp_path, callback, Seeded(), epochs=11, **options).train()
        assert callback.is_done
        found.append([(result.channels, result.cut) for result in callback.results])
    assert found[0] == found[1]


def test_bf16(tmp_path: Path) -> None:
    callback = pruning(method="ibp", macs_ratio=1.5)
    trainer(trained(), tmp_path, callback, epochs=11, bf16=True).train()
    assert callback.is_done
    assert callback.stages is not None
    assert callback.stages.ratios()["macs"] > 1.45


def test_a_checkpoint_brings_its_cuts_and_goes_on(tmp_path: Path) -> None:
    first, callback = trained(), pruning(only=TWO)
    saving = {"save_strategy": "steps", "save_steps": 44, "save_total_limit": 1}
    with pytest.warns(UserWarning, match="training ended after . steps of stage 2 of 2"):
        trainer(first, tmp_path, callback, epochs=11, **saving).train()
    place = tmp_path / "checkpoint-44"
    state = json.loads((place / "rbprune.json").read_text())
    assert state["stage"] == 1

    again = pruning(**callback.settings)
    with pytest.raises(CheckpointError, match="has no rbprune.json"):
        again.prepare(fresh(), tmp_path)

    (tmp_path / "damaged").mkdir()
    for content, message in (("{", "rbprune.json is no JSON"), ('{"dataset_size": []}', r"says dataset_size = \[\]")):
        (tmp_path / "damaged" / "rbprune.json").write_text(content)
        with pytest.raises(CheckpointError, match=message):
            again.prepare(fresh(), tmp_path / "damaged")

    second = fresh()
    again.prepare(second, place)
    goes_on = trainer(second, tmp_path, again, epochs=22)
    goes_on.train(resume_from_checkpoint=str(place))
    assert goes_on.state.global_step == 88
    assert again.is_done
    assert len(again.results) == 1
    assert again.plan.sites[TWO[0]] == callback.plan.sites[TWO[0]]


def test_going_on_without_the_cuts_is_refused(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 4}
    trainer(trained(), tmp_path, epochs=1, **saving).train()
    with pytest.raises(
        CheckpointError, match=r"at step 4, and the model is not cut.*call prepare\(model, checkpoint\)"
    ):
        trainer(fresh(), tmp_path, pruning(), epochs=2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_another_model_than_the_prepared_one_is_refused(tmp_path: Path) -> None:
    callback = pruning(method="uniform", macs_ratio=2)
    trainer(trained(), tmp_path, callback, epochs=1, save_strategy="steps", save_steps=4).train()
    callback.prepare(fresh(), tmp_path / "checkpoint-4")
    with pytest.raises(ConfigError, match="prepare was called with another model"):
        trainer(fresh(), tmp_path, callback, epochs=2).train()


def test_the_pruned_network_can_be_saved_and_loaded(tmp_path: Path) -> None:
    model, callback = trained(), pruning(method="uniform", macs_ratio=2)
    found = trainer(model, tmp_path / "run", callback, epochs=1)
    found.train()
    callback.save(tmp_path / "pruned")
    again = rbprune.load(tmp_path / "pruned", fresh())
    images = PICTURES.images[:8]
    assert torch.equal(again.eval()(images).logits, model.eval()(images).logits)
    assert callback.is_done
    assert all(found.optimizer.optimizer.state[p]["exp_avg"].shape == p.shape for p in model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing=True"),
        (
            {"load_best_model_at_end": True, "save_strategy": "epoch", "eval_strategy": "epoch"},
            "load_best_model_at_end",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_refused_before_anything_is_trained(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _check_arguments(TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options))


def test_targets_of_another_name_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no 'classes', but labels, pixel_values|but pixel_values, labels"):
        trainer(trained(), tmp_path, pruning(labels="classes"), epochs=1).train()


def test_outputs_without_logits_are_refused() -> None:
    assert select_logits({"logits": 3}) == 3
    with pytest.raises(ConfigError, match="returns no logits, but last_hidden_state; say what the loss takes: select="):
        select_logits({"last_hidden_state": 3})


def test_nothing_is_told_before_it_began() -> None:
    with pytest.raises(ConfigError, match="nothing has been pruned yet"):
        _ = pruning().results
