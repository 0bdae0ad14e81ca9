"""What layers of torch return, told from the shape of what they are given: torch takes far longer to say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.graph.layer_table import computes_as_torch, torchvision_kind

KnownResult = Callable[[Tensor], Tensor | None]
"""Gives what a layer returns for a tensor without values; None where torch must be asked."""

_POINTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish),
    *(nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Softplus),
)


def known_result(module: nn.Module) -> KnownResult | None:
    """How to tell what a layer returns; None for a layer of which nobody here knows.

    All numbers are read from the layer now, none but the mode when it is called.

    >>> known_result(nn.Conv2d(3, 8, 3, stride=2))(torch.empty(1, 3, 9, 9, device="meta")).shape
    torch.Size([1, 8, 4, 4])
    """
    if torchvision_kind(module) is not None and type(module).__name__ == "StochasticDepth":
        return _dropped(module, module.p == 0)
    if not computes_as_torch(module):
        return None
    if isinstance(module, _ConvNd):
        return None if isinstance(module, _ConvTransposeNd) or isinstance(module.padding, str) else _convolved(module)
    if isinstance(module, _BatchNorm):
        return _normalised(module) if type(module).forward is _BatchNorm.forward else None
    if isinstance(module, nn.Linear):
        return _projected(module)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _pooled(module)
    if isinstance(module, nn.LayerNorm):
        return _layer_normalised(module)
    if isinstance(module, nn.Identity):
        return lambda x: x
    if isinstance(module, nn.Dropout | nn.Dropout2d):
        return _dropped(module, module.p == 0 or module.inplace)
    if isinstance(module, _POINTWISE):
        return _written_into if getattr(module, "inplace", False) else _alike
    return None


_META = torch.device("meta")


def _empty(shape: Sequence[int], x: Tensor) -> Tensor:
    """A tensor without values, of the type of another: ``x.new_empty`` takes five times as long on this device."""
    return torch.empty(shape, dtype=x.dtype, device=_META)


def always_makes_anew(module: nn.Module) -> bool:
    """Whether a layer of which the result is known never hands on, or writes into, what it is given, as dropout does in
    evaluation."""
    if isinstance(module, nn.Identity | nn.Dropout | nn.Dropout2d) or type(module).__name__ == "StochasticDepth":
        return False
    return not getattr(module, "inplace", False)


def _alike(x: Tensor) -> Tensor | None:
    if not x.is_floating_point():
        return None
    return _empty(x.shape, x) if x.is_contiguous() else torch.empty_like(x, device=_META)  # which takes far longer


def _dropped(module: nn.Module, never: Any) -> KnownResult:
    return lambda x: None if not x.numel() else x if never or not module.training else _alike(x)


def _written_into(x: Tensor) -> Tensor | None:
    return x if x.is_floating_point() else None


def _dtype_of_weight(module: nn.Module) -> torch.dtype | None:
    """The type that a layer's input must have; None where its weight is computed."""
    weight = module._parameters.get("weight")
    return None if weight is None else weight.dtype


def _convolved(module: _ConvNd) -> KnownResult:
    reads, makes, dtype = module.in_channels, module.out_channels, _dtype_of_weight(module)
    padding: Any = module.padding
    numbers = list(zip(module.kernel_size, module.stride, padding, module.dilation, strict=True))

    def result(x: Tensor) -> Tensor | None:
        shape = x.shape
        if len(shape) != len(numbers) + 2 or shape[1] != reads or x.dtype is not dtype or not x.is_contiguous():
            return None
        space = [
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, (kernel, stride, pad, dilation) in zip(shape[2:], numbers, strict=True)
        ]
        return _empty((shape[0], makes, *space), x) if min(space) > 0 else None

    return result


def _projected(module: nn.Linear) -> KnownResult:
    reads, makes, dtype = module.in_features, module.out_features, _dtype_of_weight(module)

    def result(x: Tensor) -> Tensor | None:
        fits = x.dim() > 0 and x.shape[-1] == reads and x.dtype is dtype and x.is_contiguous()
        return _empty((*x.shape[:-1], makes), x) if fits else None

    return result


def _normalised(module: _BatchNorm) -> KnownResult:
    channels = module.num_features

    def result(x: Tensor) -> Tensor | None:
        module._check_input_dim(x)  # type: ignore[no-untyped-call]
        return _alike(x) if x.shape[1] == channels else None

    return result


def _layer_normalised(module: nn.LayerNorm) -> KnownResult:
    shape, dtype = tuple(module.normalized_shape), _dtype_of_weight(module)

    def result(x: Tensor) -> Tensor | None:
        fits = tuple(x.shape[-len(shape) :]) == shape and (dtype is None or x.dtype is dtype)
        return _empty(x.shape, x) if fits else None

    return result


def _pooled(module: nn.AdaptiveAvgPool2d) -> KnownResult | None:
    size = module.output_size
    height, width = size if isinstance(size, tuple) else (size, size)
    if not (isinstance(height, int) and isinstance(width, int)):
        return None
    return lambda x: _empty((*x.shape[:2], height, width), x) if x.dim() == 4 and x.is_contiguous() else None


def known_result_of_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """What arithmetic of two tensors and concatenation return for tensors without values; None where torch must be
    asked.

    >>> x = torch.empty(1, 3, 2, 2, device="meta")
    >>> known_result_of_function("cat", ([x, x], 1), {}).shape, known_result_of_function("view", (x, -1), {})
    (torch.Size([1, 6, 2, 2]), None)
    """
    if kwargs or len(args) != 2:
        return None
    x, other = args
    if name in ("cat", "concat"):
        return _concatenated(list(x), other) if isinstance(x, tuple | list) and isinstance(other, int) else None
    if name not in _ARITHMETIC or not (_is_dense(x) and _is_dense(other)) or x.dtype is not other.dtype:
        return None
    shape = _broadcast(x.shape, other.shape)
    if shape is None or name.endswith("_"):
        return x if shape == x.shape else None
    return _empty(shape, x)


_ARITHMETIC = {"add", "add_", "sub", "sub_", "mul", "mul_"}


def _broadcast(a: torch.Size, b: torch.Size) -> tuple[int, ...] | None:
    """The shape of what two tensors of these shapes make; None where their dimensions are not as many or do not fit."""
    if a == b:
        return a
    if len(a) != len(b) or not all(one == other or 1 in (one, other) for one, other in zip(a, b, strict=True)):
        return None
    return tuple(other if one == 1 else one for one, other in zip(a, b, strict=True))


def _is_dense(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_meta and x.is_floating_point() and x.is_contiguous()


def _concatenated(tensors: list[Any], dim: int) -> Tensor | None:
    if not tensors or not all(map(_is_dense, tensors)):
        return None
    first = tensors[0]
    shapes = [list(each.shape) for each in tensors]
    if not -first.dim() <= dim < first.dim() or any(each.dtype is not first.dtype for each in tensors):
        return None
    whole = sum(shape.pop(dim) for shape in shapes if len(shape) == first.dim())
    if any(shape != shapes[0] for shape in shapes):
        return None
    place = dim % first.dim()
    return _empty((*shapes[0][:place], whole, *shapes[0][place:]), first)
