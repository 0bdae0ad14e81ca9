"""Models of timm by name, and the images that they were trained on."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torch import nn

from rbprune.errors import ConfigError, ModelError, nearest
from rbprune.utils.extras import import_extra

TIMM = "timm"
COLOURS = 3


def build_timm(
    name: str, classes: int | None, weights: str | Path | None, kwargs: dict[str, Any]
) -> tuple[nn.Module, str | Path | None]:
    """The model ``timm:NAME`` and the weights that are still to be loaded.

    ``weights`` is a file, ``"timm"`` for the pretrained weights that timm has by default for that name (they are
    fetched), or ``"timm:TAG"`` for one of its several.
    """
    timm, short = import_extra("timm", extra="timm", error=ModelError), _known(name)
    offered, tag = _offer(weights)
    if offered and tag:
        _check_tag(short, tag)
        short = f"{short.partition('.')[0]}.{tag}"
    options = {**({} if classes is None else {"num_classes": classes}), **kwargs}
    try:
        model = timm.create_model(short, pretrained=offered, **options)
    except (TypeError, AssertionError) as cause:
        raise ModelError(f"model {name!r} with {options}: {cause}") from cause
    except (OSError, RuntimeError) as cause:
        if not offered:
            raise ModelError(f"model {name!r} with {options}: {cause}") from cause
        raise ModelError(
            f"model {name!r}: the pretrained weights cannot be fetched: {cause}; check the network, whether timm has "
            "any for it, or give weights=FILE.safetensors"
        ) from cause
    return model, None if offered else weights


def offers_weights(weights: str | Path | None) -> bool:
    """Whether weights of timm's own are meant."""
    return _offer(weights)[0]


def timm_images(name: str, weights: str | Path | None = None) -> dict[str, Any]:
    """The settings of data (``image_size``, ``mean``, ``std``, ``interpolation``, ``crop``) that ``timm:NAME`` was made
    for, as timm resolves them; where ``weights`` name one of several offers of timm's, those of that one."""
    timm, short = import_extra("timm", extra="timm", error=ModelError), _known(name)
    offered, tag = _offer(weights)
    if offered and tag:
        short = f"{short.partition('.')[0]}.{tag}"
    traits = timm.get_pretrained_cfg(short)
    config = importlib.import_module("timm.data").resolve_data_config(
        pretrained_cfg=traits.to_dict() if traits is not None else {}, args={"in_chans": COLOURS}
    )
    channels, height, width = config["input_size"]
    if channels != COLOURS or height != width or config["crop_mode"] != "center":
        raise ConfigError(
            f"model {name!r} wants images of shape {tuple(config['input_size'])} by crop_mode {config['crop_mode']!r}; "
            "only squares in colour, cropped in the centre, are read from folders: give a data.name of your own"
        )
    return {
        "image_size": height,
        "mean": list(config["mean"]),
        "std": list(config["std"]),
        "interpolation": config["interpolation"],
        "crop": config["crop_pct"],
    }


def _known(name: str) -> str:
    """The name that timm knows; what timm would fetch or read from elsewhere (``hf-hub:``) is refused."""
    timm, short = import_extra("timm", extra="timm", error=ModelError), name.partition(":")[2]
    base, dot, tag = short.partition(".")
    known = timm.list_models()
    if base not in known:
        raise ModelError(f"unknown model {name!r}{nearest(base, known)} (timm has {len(known)}: timm.list_models())")
    if dot:
        _check_tag(short, tag)
    return short


def _check_tag(short: str, tag: str) -> None:
    timm, base = import_extra("timm", extra="timm", error=ModelError), short.partition(".")[0]
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")]
    if tag not in tags:
        raise ModelError(f"timm has no weights {tag!r} of {base}; it has: {', '.join(tags) or 'none'}")


def _offer(weights: str | Path | None) -> tuple[bool, str]:
    head, _, tag = str(weights).partition(":")
    return head == TIMM, tag
