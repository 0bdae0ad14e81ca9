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
    recipe: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure, and the runs it needs; none where everything is measured on the spot."""

    name: str
    title: str
    runs: tuple[PaperRun, ...]


def _cifar10(method: str) -> PaperRun:
    return PaperRun(f"vgg16-cifar10-{method}", method.upper(), "vgg16-cifar10", (f"prune.method={method}",))


VGG_RBP = PaperRun("vgg16-rbp", "RBP", "vgg16-ilsvrc")
RESNET_RBP = PaperRun("resnet50-rbp", "RBP", "resnet50-ilsvrc-rbp")
RESNET_RRBP = PaperRun("resnet50-rrbp", "RRBP", "resnet50-ilsvrc-rrbp")

EXPERIMENTS = {
    found.name: found
    for found in (
        Experiment(
            "cifar10", "VGG16 on CIFAR10", tuple(_cifar10(method) for method in ("sbp", "bc", "rbc", "ibp", "rbp"))
        ),
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
