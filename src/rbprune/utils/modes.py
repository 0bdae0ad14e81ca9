"""Training and evaluation mode: whoever changes it gives it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def modes_kept(*models: nn.Module) -> Iterator[None]:
    """Inside, modules may change their mode; afterwards each has its own again, whatever happened."""
    modes = {module: module.training for model in models for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Inside, the models are in evaluation mode.

    >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    >>> with evaluating(model):
    ...     model[0].training
    False
    >>> model[0].training, model[1].training
    (True, False)
    """
    with modes_kept(*models):
        for model in models:
            model.eval()
        yield


@contextmanager
def batch_normalising(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode, but for batch normalisation, which takes the statistics of each batch as
    in training and leaves the running ones as they are. A batch with one value of each channel has no variance: it is
    normalised by the running statistics.

    >>> import torch
    >>> norm = nn.BatchNorm1d(1)
    >>> with batch_normalising(norm):
    ...     norm(torch.tensor([[1.0], [3.0]])).round().tolist()
    [[-1.0], [1.0]]
    >>> norm.running_mean, norm.num_batches_tracked
    (tensor([0.]), tensor(0))
    >>> with batch_normalising(norm):
    ...     norm(torch.tensor([[3.0]])).round().tolist()
    [[3.0]]
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    saved = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    handles = [norm.register_forward_pre_hook(_train_on_several_values) for norm in norms]
    with evaluating(model):
        try:
            for norm in norms:
                norm.momentum, norm.num_batches_tracked = 0.0, None
            yield
        finally:
            for handle in handles:
                handle.remove()
            for norm, (momentum, batches) in zip(norms, saved, strict=True):
                norm.momentum, norm.num_batches_tracked = momentum, batches


def _train_on_several_values(norm: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Put batch normalisation into training mode where a batch has several values of each channel."""
    values = args[0]
    norm.training = values.numel() > values.shape[1]
