"""Factors on the channels of some sites, at the input of every consumer, or on whole branches."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.conv import _ConvNd

from rbprune.errors import UnprunableError
from rbprune.graph import ChannelGraph, Site
from rbprune.graph.branch import Branch
from rbprune.methods.function_inputs import FunctionInputs, Scale
from rbprune.utils.inputs import inputs_by_position

_MOST_SHAPES = 32
"""How many shapes of tensors have memory that is kept for the next step."""


class ChannelFactor(nn.Module):
    """What multiplies each channel while a method decides about it: a number, or a distribution."""

    draws_once = False
    """Whether the method looks at the slopes of one draw, so that all sites of a pass must see as many examples."""

    def draw(self, rows: int) -> Tensor | None:
        """Factors for training: [rows, channels], one row per example (or one in all), differentiable; None: all 1."""
        raise NotImplementedError

    def mean(self) -> Tensor | None:
        """What stands for them in evaluation, and is folded into the weights: [channels]; None: all 1."""
        raise NotImplementedError


class Gates:
    """Multiplies factors on the channels of some sites, at the input of every consumer.

    In training (with ``always`` in evaluation too) one draw is made per example, or per batch, and forward
    pass, and all consumers of a channel see the same one; otherwise the factor is its mean. Attached by hooks, so
    the model's own code, names and parameters stay as they are.
    """

    def __init__(
        self,
        graph: ChannelGraph,
        sites: list[Site],
        factors: ChannelFactor,
        *,
        per: Literal["example", "batch"] = "example",
        always: bool = False,
    ) -> None:
        self.model, self.factors, self.per, self.always = graph.model, factors, per, always
        self._sizes = [site.channels for site in sites]
        self._names = [site.name for site in sites]
        self.scratch: dict[Any, Tensor] = {}
        """Memory that the backward pass uses again and again, by shape."""
        self._drawn: dict[int, dict[str, Tensor] | None] = {}
        self._examples: dict[str, int] | None = None
        """In a pass of the whole model: how many examples the readers of each site have seen."""
        self._handles = [graph.model.register_forward_pre_hook(self._forget)]
        self._handles.append(graph.model.register_forward_hook(self._end_pass, always_call=True))
        functions: dict[str, list[Scale]] = {}
        for site in sites:
            if isinstance(site, Branch):
                hook_on_output = _ScaleBranch(self, site.name)
                self._handles.append(graph.module(site.output).register_forward_hook(hook_on_output))
            for part in site.parts:
                if part.role != "in":
                    continue
                scale = _Scale(self, site.name, _columns(graph, site, part), _meets_steps_first(graph, site))
                if graph.is_module(part.owner):
                    self._handles.append(inputs_by_position(graph.module(part.owner)))
                    self._handles.append(graph.module(part.owner).register_forward_pre_hook(scale.on_module))
                else:
                    functions.setdefault(part.owner, []).append(scale.on_function)
        if functions:
            self._handles += FunctionInputs(graph.model, functions).handles

    def detach(self) -> None:
        """Take the gates off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._drawn = {}
        self.scratch = {}

    def _forget(self, module: nn.Module, args: Any) -> None:
        self._drawn, self._examples = {}, {}

    def _end_pass(self, module: nn.Module, args: Any, output: Any) -> None:
        self._examples = None

    def theta(self, site: str, batch: int, training: bool) -> Tensor | None:
        """Factors for the channels of a site: [batch or 1, channels]; None: all 1."""
        training = training or self.always
        rows = 0 if not training else batch if self.per == "example" else 1
        seen = rows
        if rows and self._examples is not None:  # a reader in evaluation has the mean, and asks for no rows
            seen = self._examples.setdefault(site, rows)
        if seen != rows:
            raise UnprunableError(
                f"the layers that read the channels of {site!r} see {seen} and {rows} examples in one "
                "pass, so they cannot share one factor per example; set prune.noise='batch' (for methods with noise), "
                "or leave the site alone by prune.keep or prune.only"
            )
        if rows and self.factors.draws_once:
            self._check_all_see(rows, site)
        if rows not in self._drawn or not training:
            with saved_tensors_hooks(_as_it_is, _as_it_is):  # activation checkpointing does not draw again
                drawn = self.factors.draw(rows) if rows else self.factors.mean()
            # split, not sliced: one backward step for all sites instead of a zero-filled gradient for each
            parts = () if drawn is None else drawn.view(-1, sum(self._sizes)).split(self._sizes, dim=1)
            self._drawn[rows] = dict(zip(self._names, parts, strict=True)) if parts else None
        found = self._drawn[rows]
        return None if found is None else found[site]

    def _check_all_see(self, rows: int, site: str) -> None:
        """Two sites with other numbers of examples would need two draws, and the slopes of one would go unseen: its
        channels would look as if nobody needed them."""
        for other, seen in (self._examples or {}).items():
            if seen != rows:
                raise UnprunableError(
                    f"the channels of {other!r} are read for {seen} examples in a pass and those of {site!r} for "
                    f"{rows}, so one stage cannot weigh both; prune them in stages of their own (prune.method = 'rbp' "
                    "with a price), or leave one of them alone by prune.keep or prune.only"
                )


def _columns(graph: ChannelGraph, site: Site, part: Any) -> Tensor | None:
    """For each input column of a consumer the channel of ``site`` it carries (``channels`` if none of them).

    None when columns and channels are the same thing.
    """
    places = graph.places(site, part)
    width = graph.width(part)
    columns = torch.full((width,), site.channels)
    columns[places.flatten()] = torch.arange(site.channels).repeat_interleave(places.shape[1])
    return None if torch.equal(columns, torch.arange(site.channels)) else columns


def _meets_steps_first(graph: ChannelGraph, site: Site) -> bool:
    """Whether a recurrent layer reads the site with the steps of a sequence in the first dimension."""
    readers = [graph.module(name) for name in site.consumers if graph.is_module(name)]
    return any(isinstance(reader, nn.RNNBase) and not reader.batch_first for reader in readers)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class _Scale:
    """Multiplies what a consumer reads by its channels' factors."""

    def __init__(self, gates: Gates, site: str, columns: Tensor | None, steps_first: bool) -> None:
        self.gates, self.site, self.columns, self.steps_first = gates, site, columns, steps_first

    def on_module(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A forward pre-hook."""
        examples = _dimension_of_examples(module, args[0], self.site)
        return (self._scaled(args[0], isinstance(module, _ConvNd), examples, module.training), *args[1:])

    def on_function(self, x: Tensor, second: bool, training: bool) -> Tensor:
        """The input of a function, with its channels in the second dimension or in the last."""
        return self._scaled(x, second, 0, training)

    def _scaled(self, x: Tensor, second: bool, examples: int, training: bool) -> Tensor:
        theta = self.gates.theta(self.site, x.shape[examples], training)
        if theta is None:
            return x
        if len(theta) > 1 and self.steps_first and examples == 0 and not second and x.shape[0] == x.shape[1]:
            raise UnprunableError(
                f"the channels of {self.site!r} are read with the steps first by a recurrent layer and from a tensor "
                f"of shape {list(x.shape)} by another, which does not tell steps from examples; take batches of "
                "another size, set prune.noise='batch', or leave the site alone by prune.keep or prune.only"
            )
        if self.columns is not None:
            theta = torch.cat([theta, torch.ones_like(theta[:, :1])], dim=1)[:, self.columns.to(theta.device)]
        theta = theta.to(x.dtype)
        if second:
            theta = theta.view(*theta.shape, *[1] * (x.dim() - 2))
        elif x.dim() > 2:
            theta = theta.view([theta.shape[0] if d == examples else 1 for d in range(x.dim() - 1)] + [theta.shape[1]])
        return _ScaleChannels.apply(x, theta, self.gates.scratch)  # type: ignore[no-untyped-call,no-any-return]


def _dimension_of_examples(module: nn.Module, x: Any, site: str) -> int:
    """Which dimension of a consumer's input counts examples: the first, but in a recurrent layer with the steps first.

    >>> _dimension_of_examples(nn.LSTM(3, 2), torch.zeros(7, 5, 3), "conv")
    1
    """
    if not isinstance(module, nn.RNNBase):
        return 0
    if not isinstance(x, Tensor) or x.dim() != 3:
        given = f"shape {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise UnprunableError(
            f"a {type(module).__name__} reads the channels of {site!r} from a {given}, and a factor for each example "
            "needs a batch of padded sequences; pass a tensor with three dimensions, or leave the site alone by "
            "prune.keep or prune.only"
        )
    return 0 if module.batch_first else 1


class _ScaleBranch:
    """A forward hook that multiplies what a branch gives by its factor."""

    def __init__(self, gates: Gates, branch: str) -> None:
        self.gates, self.branch = gates, branch

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        # a branch may end in a norm, whose own mode tells of statistics and not whether the network is trained
        theta = self.gates.theta(self.branch, output.shape[0], self.gates.model.training)
        if theta is None:
            return output
        theta = theta.to(output.dtype).view(theta.shape[0], *[1] * (output.dim() - 1))
        return _ScaleChannels.apply(output, theta, self.gates.scratch)  # type: ignore[no-untyped-call,no-any-return]


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
            if len(ctx.scratch) >= _MOST_SHAPES:  # images of any size
                ctx.scratch.pop(next(iter(ctx.scratch)))
            ctx.scratch[key] = torch.empty_like(grad)
        product = torch.mul(grad, x, out=ctx.scratch[key])
        shared = [d for d in range(grad.dim()) if theta.shape[d] == 1]
        return grad_x, product.sum(shared, keepdim=True) if shared else product.clone(), None
