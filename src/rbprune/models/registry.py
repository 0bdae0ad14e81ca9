"""Models by name: the zoo, torchvision's, timm's and the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ModelError, nearest
from rbprune.models.lenet import LeNet5
from rbprune.models.resnet_cifar import ResNetCifar
from rbprune.models.timm_models import COLOURS, TIMM, build_timm, offers_weights, timm_images
from rbprune.models.vgg import VGG16Cifar
from rbprune.models.weights import load_weights
from rbprune.utils.imports import Factory, find, is_spec
from rbprune.utils.torchvision import import_torchvision

TORCHVISION = "torchvision"
BATCH = 2


@dataclass(frozen=True)
class Entry:
    """How a model of the zoo is made and the shape of one of its examples."""

    make: Callable[..., nn.Module]
    shape: tuple[int, ...]


ZOO: dict[str, Entry] = {
    "lenet5": Entry(LeNet5, (1, 28, 28)),
    "vgg16-cifar": Entry(VGG16Cifar, (3, 32, 32)),
    **{f"resnet{depth}-cifar": Entry(partial(ResNetCifar, depth), (3, 32, 32)) for depth in (20, 32, 44, 56, 110)},
    **{
        f"resnet{depth}b-cifar": Entry(partial(ResNetCifar, depth, projections=True), (3, 32, 32)) for depth in (20, 56)
    },
}
TORCHVISION_SHAPE = (3, 224, 224)


def build(name: str, *, classes: int | None = None, weights: str | Path | None = None, **kwargs: Any) -> nn.Module:
    """Make a model: a name of ``ZOO``, ``torchvision:<model>``, ``timm:<model>``, or the user's ``module:factory``.

    ``weights`` is a .safetensors file, or ``"torchvision"`` for the pretrained weights that torchvision thinks best;
    ``"torchvision:IMAGENET1K_V1"`` names those of its offers that shall be taken. ``"timm"`` and
    ``"timm:a1_in1k"`` do the same for a model of timm.
    ``classes`` reaches the user's factory only if it takes an argument of that name.

    >>> build("lenet5", classes=3).fc2.out_features
    3
    """
    _refuse_others_weights(name, weights)
    if name.startswith(f"{TORCHVISION}:"):
        model, weights = _torchvision(name, classes, weights, kwargs)
    elif is_timm(name):
        model, weights = build_timm(name, classes, weights, kwargs)
    elif is_spec(name):
        model = _users(name, classes, kwargs)
    else:
        model = _zoo(name, classes, kwargs)
    if weights is not None:
        load_weights(model, weights)
    return model


def example_input(name: str, model: nn.Module, shape: tuple[int, ...] | None = None) -> Tensor:
    """A batch of two examples, on the model's device and in its type.

    ``shape`` is that of one example; a user's model needs it unless its module has a function ``example_inputs()``.

    >>> example_input("lenet5", build("lenet5")).shape
    torch.Size([2, 1, 28, 28])
    """
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if shape is None:
        if name in ZOO:
            shape = ZOO[name].shape
        elif name.startswith(f"{TORCHVISION}:"):
            shape = TORCHVISION_SHAPE
        elif is_timm(name):
            shape = (COLOURS, *[timm_images(name)["image_size"]] * 2)
        elif is_spec(name):
            given = _users_example(name)
            return given.to(like) if given.is_floating_point() else given.to(like.device)
        else:
            raise _unknown(name)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, *shape, generator=generator).to(like)


def is_timm(name: str) -> bool:
    """Whether a name is one of timm's models."""
    return name.startswith(f"{TIMM}:")


def is_users_code(name: str) -> bool:
    """Whether a model is made by a function of the user's, not by rbprune, torchvision or timm.

    >>> is_users_code("nets.py:make"), is_users_code("torchvision:vgg16"), is_users_code("lenet5")
    (True, False, False)
    """
    return is_spec(name) and not name.startswith((f"{TORCHVISION}:", f"{TIMM}:"))


def _refuse_others_weights(name: str, weights: str | Path | None) -> None:
    """Refuse weights that torchvision or timm offers for a model of somebody else's."""
    package = TORCHVISION if _offered(weights) is not None else TIMM if offers_weights(weights) else None
    if package is not None and not name.startswith(f"{package}:"):
        raise ModelError(
            f"model {name!r}: weights={weights!r} needs a model named '{package}:<model>'; "
            "give a .safetensors file instead"
        )


def _zoo(name: str, classes: int | None, kwargs: dict[str, Any]) -> nn.Module:
    if name not in ZOO:
        raise _unknown(name)
    if classes is not None:
        kwargs = {"classes": classes, **kwargs}
    try:
        return ZOO[name].make(**kwargs)
    except TypeError as cause:
        raise ModelError(f"model {name!r}: {cause}; its only option is classes") from cause


def _torchvision(
    name: str, classes: int | None, weights: str | Path | None, kwargs: dict[str, Any]
) -> tuple[nn.Module, str | Path | None]:
    models = import_torchvision().models
    short = name.partition(":")[2]
    known = models.list_models(module=models)
    if short not in known:
        raise ModelError(f"unknown model {name!r}{nearest(short, known)} (torchvision has: {', '.join(known)})")
    offer = _offered(weights)
    if offer is not None and offer not in (offers := models.get_model_weights(short).__members__):
        raise ModelError(f"model {name!r}: torchvision has no weights {offer!r}; it has: {', '.join(offers) or 'none'}")
    if classes is not None:
        kwargs = {"num_classes": classes, **kwargs}
    try:
        model = models.get_model(short, weights=offer, **kwargs)
    except (TypeError, ValueError) as cause:
        remedy = "; the pretrained weights are for their own classes: do without them, or use data with as many"
        raise ModelError(f"model {name!r} with {kwargs}: {cause}{'' if offer is None else remedy}") from cause
    except OSError as cause:
        raise ModelError(
            f"model {name!r}: the pretrained weights cannot be fetched: {cause}; "
            "check the network, or give weights=FILE.safetensors"
        ) from cause
    return model, weights if offer is None else None


def _offered(weights: str | Path | None) -> str | None:
    """Which of torchvision's weights are meant, if any of them."""
    head, colon, name = str(weights).partition(":")
    return (name if colon else "DEFAULT") if head == TORCHVISION else None


def _users(name: str, classes: int | None, kwargs: dict[str, Any]) -> nn.Module:
    factory = find(name, error=ModelError)
    if classes is not None and factory.accepts("classes"):
        kwargs = {"classes": classes, **kwargs}
    model = factory(**kwargs)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name}() returned {type(model).__name__}; it must return a torch.nn.Module")
    return model


def _users_example(name: str) -> Tensor:
    factory = find(name, error=ModelError)
    make = getattr(factory.module, "example_inputs", None)
    if make is None:
        raise ModelError(
            f"model {name!r}: the shape of its input is unknown; pass the shape of one example, "
            "or add a function example_inputs() to its module that returns a batch"
        )
    place = name.rpartition(":")[0]
    example = Factory(f"{place}:example_inputs", factory.module, make, factory.folder, ModelError)()
    if isinstance(example, tuple | list) and len(example) == 1:
        example = example[0]
    if not isinstance(example, Tensor):
        raise ModelError(f"{place}:example_inputs() returned {type(example).__name__}; it must return one tensor")
    return example


def _unknown(name: str) -> ModelError:
    known = ", ".join([*ZOO, "torchvision:<model>", "timm:<model>", "package.module:factory", "path/file.py:factory"])
    return ModelError(f"unknown model {name!r}{nearest(name, ZOO)} (known: {known})")
