"""What fine-tuning may do beyond plain training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.errors import ConfigError
from rbprune.settings.sections import FinetuneSettings, PretrainSettings, RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.phase import Phase, PhaseRun
from rbprune.train.recovery import WeightAverage, check_resets, make_fresh, training_loss
from tests.networks import tiny_cnn
from tests.train.small import STEPS, small_stream


def test_smoothed_labels_are_trained_with_and_other_losses_are_refused() -> None:
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    smoothed = training_loss(FinetuneSettings(label_smoothing=0.2), F.cross_entropy)(outputs, targets)
    spread = 0.8 * F.one_hot(targets, 3) + 0.2 / 3
    assert float(smoothed) == pytest.approx(float(-(spread * outputs.log_softmax(1)).sum(1).mean()), abs=1e-6)
    assert training_loss(FinetuneSettings(), F.mse_loss) is F.mse_loss
    assert training_loss(PretrainSettings(epochs=1, lr=0.1), F.cross_entropy) is F.cross_entropy
    with pytest.raises(ConfigError, match=r"label_smoothing = 0\.2 changes F\.cross_entropy, and the loss is mse_loss"):
        training_loss(FinetuneSettings(label_smoothing=0.2), F.mse_loss)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_phase_ends_with_the_mean_of_its_last_weights(share: float) -> None:
    torch.manual_seed(0)
    model = tiny_cnn()
    phase = Phase(0, "finetune", FinetuneSettings(epochs=2, lr=0.01, average=share))
    run = PhaseRun(phase, Engine(RuntimeSettings()), model, small_stream(), F.cross_entropy, seed=3)
    seen = []
    while not run.over:
        for _ in run.run_epoch():
            # the last weights are already the average; what they were is in the mean
            seen.append({k: v.double().clone() for k, v in model.state_dict().items() if v.is_floating_point()})
    steps = 2 * STEPS
    assert len(seen) == steps
    assert run.average is not None and run.average.count == round(share * steps)
    last = seen[steps - run.average.count : -1]
    for name, final in seen[-1].items():
        before = sum(state[name] for state in last) / max(1, len(last))
        # mean of n = ((n - 1) * mean of the others + last) / n: the last weights, one step away, follow from it
        implied = run.average.count * final - len(last) * before
        assert (implied - seen[-2][name]).abs().max() < 0.2
        assert torch.allclose(final, run.average.means[name].double(), atol=1e-12)


def test_an_average_is_the_plain_mean_of_what_was_added() -> None:
    model = nn.Linear(2, 1)
    average, added = WeightAverage(model, steps=4, share=0.5), []
    for step in range(1, 5):
        with torch.no_grad():
            model.weight.copy_(torch.randn(1, 2))
        average.add(step)
        added.append(model.weight.detach().clone())
    average.use()
    assert torch.allclose(model.weight, (added[2] + added[3]) / 2, atol=1e-6)


def test_fresh_weights_keep_the_widths_and_depend_on_the_seed_alone() -> None:
    model = tiny_cnn()
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    make_fresh(model, 1)
    one = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert {name: tensor.shape for name, tensor in one.items()} == shapes
    make_fresh(model, 2)
    assert any(not torch.equal(model.state_dict()[name], tensor) for name, tensor in one.items())
    make_fresh(model, 1)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in one.items())


def test_a_layer_that_cannot_reset_its_weights_is_named() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(1))

    with pytest.raises(ConfigError, match=r"'1' has no reset_parameters\(\)"):
        check_resets(nn.Sequential(nn.Conv2d(1, 2, 3), Scaled()))
