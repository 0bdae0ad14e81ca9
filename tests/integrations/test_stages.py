"""Stages inside a loop that knows nothing of them; Lightning and transformers are tested in files of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.errors import ConfigError, LoopError
from rbprune.integrations.stages import HostedStages
from tests.integrations.small import SIZE, STEPS, data, endless, first_batches, hooks_on, trained

EXAMPLE = data().tensors[0][:2]


def hosted(model: nn.Module, **settings: Any) -> HostedStages:
    return HostedStages(model, EXAMPLE, dataset_size=SIZE, loss_fn=F.cross_entropy, steps=STEPS, **settings)


def train(model: nn.Module, stages: HostedStages, steps: int, loss: Any = F.cross_entropy) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    stages.begin(optimizer)
    for _, (inputs, labels) in zip(range(steps), endless(), strict=False):
        optimizer.zero_grad()
        loss(model(inputs), labels).backward()
        optimizer.step()
        stages.step_done(optimizer)


@pytest.mark.parametrize(
    "settings",
    [
        *({"method": name} for name in ("rbp", "sbp", "bc", "dds")),
        *({"method": name, "macs_ratio": 1.5} for name in ("taylor", "slimming", "thinet", "uniform", "cp")),
    ],
    ids=lambda settings: settings["method"],
)
@pytest.mark.filterwarnings("ignore:every channel of")
@pytest.mark.filterwarnings("ignore:all channels of")
def test_every_kind_of_method_comes_to_its_end(settings: dict[str, Any]) -> None:
    model = trained()
    stages = hosted(model, **settings)
    stages.measure(first_batches())
    train(model, stages, 2 * STEPS)
    assert stages.is_done
    assert len(stages.results) == len(stages.pruner)
    assert hooks_on(model) == 0
    assert stages.ratios()["macs"] >= 1
    if "macs_ratio" in settings:
        assert stages.ratios()["macs"] > 1.4


def test_two_passes_in_a_step_pay_the_divergence_once() -> None:
    model = trained()
    stages = hosted(model, rates="adam")
    stages.begin()
    assert stages.stage is not None
    rate = stages.stage.factors.rate  # type: ignore[attr-defined]
    inputs, labels = first_batches()[0]
    torch.manual_seed(0)
    (F.cross_entropy(model(inputs), labels) + F.cross_entropy(model(inputs), labels)).backward()
    found = rate.grad.clone()
    rate.grad = None
    stages._handles[0].remove()
    torch.manual_seed(0)
    loss = F.cross_entropy(model(inputs), labels) + F.cross_entropy(model(inputs), labels)
    (loss + stages.stage.kl()).backward()
    torch.testing.assert_close(found, rate.grad)
    stages.abandon()


def test_a_loss_of_something_else_is_refused() -> None:
    model = trained()

    def of_a_weight(outputs: Any, labels: Any) -> Any:
        return model[0].weight.square().sum()  # type: ignore[union-attr, operator]

    with pytest.raises(LoopError, match="in the stage of 0: the loss of this training step is not computed from what"):
        train(model, hosted(model), 2, of_a_weight)
    assert hooks_on(model) == 0


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    model, other = trained(), nn.Linear(1, 1)
    stages, optimizer = hosted(model), torch.optim.SGD(other.parameters(), lr=0.1)
    stages.begin(optimizer)

    def steps() -> None:
        for _, (inputs, labels) in zip(range(12), endless(), strict=False):
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            stages.step_done(optimizer)

    with pytest.raises(LoopError, match="Sequential was called in training and made no step in the last 10 batches"):
        steps()


def test_outputs_are_selected_for_the_pruner_and_whole_for_the_loop() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained()

        def forward(self, x: Any) -> dict[str, Any]:
            return {"scores": self.inner(x), "name": "any"}

    model, plain = Named(), trained()
    named = hosted(model, select=lambda outputs: outputs["scores"], method="ibp")
    alone = hosted(plain, method="ibp")
    for stages in (named, alone):
        stages.measure(first_batches())
        torch.manual_seed(1)
        by_name = stages is named
        train(stages.model, stages, STEPS, lambda o, y: F.cross_entropy(o["scores"] if by_name else o, y))  # noqa: B023
        assert stages.is_done
    assert model(EXAMPLE)["name"] == "any"
    assert list(named.results[0].channels.values()) == list(alone.results[0].channels.values())
    assert named.results[0].cut == alone.results[0].cut


def test_evaluation_in_the_middle_sees_no_noise_and_is_no_step() -> None:
    model = trained()
    stages = hosted(model)
    train(model, stages, 5)
    model.eval()
    assert torch.equal(model(EXAMPLE), model(EXAMPLE))
    assert stages.stage is not None
    assert stages.stage.loop.forwards == 5
    stages.abandon()


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps = 3: a stage needs at least 10"):
        HostedStages(trained(), EXAMPLE, dataset_size=SIZE, steps=3)
