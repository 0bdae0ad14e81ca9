"""Which runs stand behind each table and figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rbprune.errors import ConfigError, nearest
from rbprune.settings.recipe import load_recipe


@dataclass(frozen=True)
class PaperRun:
    """One run: a shipped recipe with a few settings of its own."""

    name: str
    label: str
    """The paper's name for its method; ``METHOD, something`` is another row of the same method."""
    recipe: str
    overrides: tuple[str, ...] = ()
    beside: str | None = None
    """The run whose cost it may spend, by name: an earlier one of the same table."""
    same_macs: bool = False
    """Whether it is also cut to the MACs of that run, instead of by a threshold of its own."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure, and the runs it needs; none where everything is measured on the spot."""

    name: str
    title: str
    runs: tuple[PaperRun, ...]


def _cifar10(method: str, label: str, seed: int = 0, beside: PaperRun | None = None, *, same: bool = False) -> PaperRun:
    """A row of the table on CIFAR10; with ``same`` at the MACs of the run that it stands beside."""
    name = f"vgg16-cifar10-{method}" + (f"-seed{seed}" if seed else "")
    if beside is not None and same:
        name, label = f"{name}-macs-of-{beside.label.lower()}", f"{label}, the MACs of {beside.label}"
    other = None if beside is None else beside.name
    return PaperRun(name, label, "vgg16-cifar10", (f"prune.method={method}", f"seed={seed}"), other, same)


PAPER_RIVALS = ("sbp", "bc", "rbc", "ibp")
"""What the paper compares with on CIFAR10."""
OTHER_RIVALS = {
    "uniform": "uniform L1",
    "tp-taylor": "Torch-Pruning (Taylor)",
    "tp-group": "Torch-Pruning (group norm)",
}
"""What the paper has no row of; they have to be told how much to cut."""
CIFAR10_RBP = _cifar10("rbp", "RBP")
_BY_THRESHOLD = {method: _cifar10(method, method.upper(), beside=CIFAR10_RBP) for method in PAPER_RIVALS}
CIFAR10_RUNS = (
    CIFAR10_RBP,
    *(_cifar10("rbp", f"RBP, seed {seed}", seed) for seed in (1, 2)),
    *_BY_THRESHOLD.values(),
    *(_cifar10(method, method.upper(), beside=CIFAR10_RBP, same=True) for method in ("sbp", "bc", "ibp")),
    _cifar10("bc", "BC", beside=_BY_THRESHOLD["rbc"], same=True),  # RBC cannot be told how much to cut, BC can
    *(_cifar10(method, label, beside=CIFAR10_RBP, same=True) for method, label in OTHER_RIVALS.items()),
)
"""Each rival by its own threshold, as in the paper, and at equal MACs, where the ablations are read off."""

VGG_RBP = PaperRun("vgg16-rbp", "RBP", "vgg16-ilsvrc")
RESNET_RBP = PaperRun("resnet50-rbp", "RBP", "resnet50-ilsvrc-rbp")
RESNET_RRBP = PaperRun("resnet50-rrbp", "RRBP", "resnet50-ilsvrc-rrbp")

EXPERIMENTS = {
    found.name: found
    for found in (
        Experiment("cifar10", "VGG16 on CIFAR10", CIFAR10_RUNS),
        Experiment("vgg16-ilsvrc", "VGG16 on ILSVRC2012", (VGG_RBP,)),
        Experiment("resnet50-ilsvrc", "ResNet50 on ILSVRC2012", (RESNET_RBP, RESNET_RRBP)),
        Experiment("gpu", "Practical acceleration of VGG16 and ResNet50", ()),
        Experiment("rates", "Histogram of the rates in each layer", (VGG_RBP, RESNET_RRBP)),
        Experiment("channels", "Channels left in each layer", (RESNET_RRBP,)),
        Experiment("finetune", "Error while fine-tuning", (VGG_RBP, RESNET_RBP, RESNET_RRBP)),
    )
}
FIGURES = ("rates", "channels", "finetune")


def find_experiment(name: str) -> Experiment:
    """Find an experiment by the name that the command takes."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f"the paper has no {name!r} here{nearest(name, EXPERIMENTS)}; there are: {known}")
    return EXPERIMENTS[name]


def check_overrides(experiment: Experiment, overrides: Sequence[str]) -> None:
    """Refuse settings with a mistake, and settings that the table itself decides."""
    if overrides and not experiment.runs:
        raise ConfigError(f"{experiment.name!r} has no runs with settings; leave out --set {overrides[0]}")
    for run in experiment.runs:
        load_recipe(run.recipe, [*run.overrides, *overrides])
        own, given = ({text.partition("=")[0].strip() for text in texts} for texts in (run.overrides, overrides))
        for key in sorted(own & given):
            raise ConfigError(
                f"{experiment.name!r} has a row for each {key}; leave out --set {key}, or compare what you like with "
                f"'rbprune compare {run.recipe}'"
            )
