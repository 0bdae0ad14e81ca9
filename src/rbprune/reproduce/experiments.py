"""Which runs stand behind each table and figure of the paper."""

from __future__ import annotations

from dataclasses import dataclass

from rbprune.errors import ConfigError, nearest


@dataclass(frozen=True)
class Work:
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
    works: tuple[Work, ...]


def _cifar10(method: str) -> Work:
    return Work(f"vgg16-cifar10-{method}", method.upper(), "vgg16-cifar10", (f"prune.method={method}",))


VGG_RBP = Work("vgg16-rbp", "RBP", "vgg16-ilsvrc")
RESNET_RBP = Work("resnet50-rbp", "RBP", "resnet50-ilsvrc-rbp")
RESNET_RRBP = Work("resnet50-rrbp", "RRBP", "resnet50-ilsvrc-rrbp")

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
    """By the name that the command takes."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f"the paper has no {name!r} here{nearest(name, EXPERIMENTS)}; there are: {known}")
    return EXPERIMENTS[name]
