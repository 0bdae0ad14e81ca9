"""Channel noise on the input of every consumer of some sites."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rbprune.bayes import dirac
from rbprune.graph import ChannelGraph, Site


class ChannelNoise(nn.Module):
    """Holds the rates r of the sites and multiplies theta ~ N(1 - r, r (1 - r)) on their channels.

    In training one theta is drawn per example (or one per batch) and forward pass, and all consumers of a channel see
    the same one; in evaluation theta is its mean 1 - r. Attached to a model by hooks, so the model's own code, names
    and parameters stay as they are.
    """

    def __init__(
        self, graph: ChannelGraph, sites: list[Site], *, rate: float, per: Literal["example", "batch"] = "example"
    ) -> None:
        super().__init__()
        self.per = per
        self._sizes = sizes = [site.channels for site in sites]
        device = next(graph.model.parameters()).device
        self.rate = nn.Parameter(torch.full((sum(sizes),), rate, device=device))
        self.slices = {s.name: slice(sum(sizes[:i]), sum(sizes[: i + 1])) for i, s in enumerate(sites)}
        self.scratch: dict[Any, Tensor] = {}
        """Memory that the backward pass uses again and again, by shape."""
        self._drawn: dict[int, dict[str, Tensor]] = {}
        self._handles = [graph.model.register_forward_pre_hook(self._forget)]
        for site in sites:
            for part in site.parts:
                if part.role == "in":
                    columns = _columns(graph, site, part)
                    hook = _Scale(self, site.name, columns)
                    self._handles.append(graph.module(part.owner).register_forward_pre_hook(hook))

    def detach(self) -> None:
        """Take the noise off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._drawn = {}
        self.scratch = {}

    def _forget(self, module: nn.Module, args: Any) -> None:
        self._drawn = {}

    def theta(self, site: str, batch: int, training: bool) -> Tensor:
        """Noise for the channels of a site: [batch or 1, channels]."""
        rows = 0 if not training else batch if self.per == "example" else 1
        if rows not in self._drawn or not training:
            # split, not sliced: one backward step for all sites instead of a zero-filled gradient for each
            parts = self._sample(rows).split(self._sizes, dim=1)
            self._drawn[rows] = dict(zip(self.slices, parts, strict=True))
        return self._drawn[rows][site]

    def _sample(self, rows: int) -> Tensor:
        if not rows:
            return (1 - self.rate).unsqueeze(0)
        return dirac.sample(self.rate, torch.randn(rows, len(self.rate), device=self.rate.device))


def _columns(graph: ChannelGraph, site: Site, part: Any) -> Tensor | None:
    """For each input column of a consumer the channel of ``site`` it carries (``channels`` if none of them).

    None when columns and channels are the same thing.
    """
    places = graph.places(site, part)
    width = graph.width(part)
    columns = torch.full((width,), site.channels)
    columns[places.flatten()] = torch.arange(site.channels).repeat_interleave(places.shape[1])
    return None if torch.equal(columns, torch.arange(site.channels)) else columns


class _Scale:
    """A forward pre-hook that multiplies a consumer's input by its channels' noise."""

    def __init__(self, noise: ChannelNoise, site: str, columns: Tensor | None) -> None:
        self.noise, self.site, self.columns = noise, site, columns

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = args
        theta = self.noise.theta(self.site, x.shape[0], module.training)
        if self.columns is not None:
            theta = torch.cat([theta, torch.ones_like(theta[:, :1])], dim=1)[:, self.columns.to(theta.device)]
        theta = theta.to(x.dtype)
        if isinstance(module, _ConvNd):
            theta = theta.view(*theta.shape, *[1] * (x.dim() - 2))
        elif x.dim() > 2:
            theta = theta.view(theta.shape[0], *[1] * (x.dim() - 2), theta.shape[1])
        return (_ScaleChannels.apply(x, theta, self.noise.scratch), *rest)  # type: ignore[no-untyped-call]


class _ScaleChannels(torch.autograd.Function):
    """x * theta, with a backward pass that takes no new memory for the product it only sums up.

    This is where the noise costs time: a plain product would write and free one more tensor as large as x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, scratch: dict[Any, Tensor]) -> Tensor:
        ctx.save_for_backward(x, theta)
        ctx.scratch = scratch
        return x * theta

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, theta = ctx.saved_tensors
        grad_x = grad * theta if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None
        key = (grad.shape, grad.stride(), grad.dtype, grad.device)
        if key not in ctx.scratch:
            ctx.scratch[key] = torch.empty_like(grad)
        product = torch.mul(grad, x, out=ctx.scratch[key])
        shared = [d for d in range(grad.dim()) if theta.shape[d] == 1]
        return grad_x, product.sum(shared, keepdim=True) if shared else product.clone(), None
