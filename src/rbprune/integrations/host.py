"""What a training loop of somebody else's is asked before pruning begins in it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DistributedSampler

from rbprune.errors import ConfigError, DataError
from rbprune.train.stream import loader_generators


def peek(loader: Iterable[Any], count: int) -> list[Any]:
    """The first batches of an epoch; every generator is put back, so that training goes on as if nobody had looked."""
    own = [(each, each.get_state()) for each in loader_generators(loader)]
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            found = list(islice(iter(loader), count))
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        for generator, state in own:
            generator.set_state(state)
    if not found:
        raise DataError(f"the training loader ({type(loader).__name__}) yields no batch; give one that does")
    return found


def count_examples_of(loader: Any) -> int:
    """The training examples behind a loader; refused where it does not know them."""
    sampler = getattr(loader, "sampler", None)
    for sized in (None if isinstance(sampler, DistributedSampler) else sampler, getattr(loader, "dataset", None)):
        try:
            return len(sized)  # type: ignore[arg-type]
        except TypeError:
            continue
    raise ConfigError(
        f"the number of training examples is not known of this {type(loader).__name__}; say it: dataset_size=..."
    )


def refuse_compiled(model: nn.Module) -> None:
    """Refuse a network that was compiled: what was compiled before sees neither the hooks of a stage nor the cuts."""
    for name, module in model.named_modules():
        by_name = type(module).__name__ == "OptimizedModule"  # its class lies in a module that takes seconds to import
        if by_name or module._compiled_call_impl is not None:
            raise ConfigError(
                f"{name or type(model).__name__} was compiled by torch.compile, which sees neither the noise on "
                "channels nor the cuts; prune the plain module, and compile the result"
            )


def refuse_unlike_pair(batch: Any) -> tuple[Any, Any]:
    """A batch as inputs and targets, where it is a pair of them."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    what = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, tuple | list | dict) else "")
    raise DataError(
        f"a training batch is {what}, not a pair of inputs and targets; say how it is divided: "
        "unpack=lambda batch: (inputs, targets)"
    )
