"""Bayesian Compression: a scale per channel under a sparsity prior, Gaussian weights in the layers that read it.

The scale z multiplies a consumer's input channel, after normalisation and activation, so a scale of 0 is a removal;
its group of weights is the consumer's column. Weights are sampled by local reparametrisation: the consumer's output
gets noise of variance var(W) * (z x)^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.bayes import horseshoe, jeffreys
from rbprune.errors import UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.gate_stage import GateStage
from rbprune.methods.settings import StageContext
from rbprune.methods.verdict import Verdict
from rbprune.utils.inputs import inputs_by_position

_CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
_TINY = 1e-8
"""Keeps the gradient of the square root finite."""


class GaussianWeights(nn.Module):
    """Log variances of the weights of some layers, and hooks that add their noise to the layers' outputs."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.layers = list(layers.values())  # a list: they are the network's, not ours
        self.logvar = nn.ParameterList(
            [nn.Parameter(torch.full_like(layer.weight, horseshoe.LOGVAR_INIT)) for layer in self.layers]  # type: ignore[arg-type]
        )
        self._handles = [
            layer.register_forward_hook(_AddNoise(logvar))
            for layer, logvar in zip(self.layers, self.logvar, strict=True)
        ]
        self._handles += [inputs_by_position(layer) for layer in self.layers]

    def kl(self) -> Tensor:
        """KL of all weights from N(0, 1)."""
        pairs = zip(self.layers, self.logvar, strict=True)
        return torch.stack([horseshoe.kl_weights(layer.weight, logvar).sum() for layer, logvar in pairs]).sum()  # type: ignore[arg-type]

    def clamp_(self) -> None:
        """Keep the log variances in their range."""
        for logvar in self.logvar:
            horseshoe.clamp_(logvar)

    def detach(self) -> None:
        """Take the noise off the layers."""
        for handle in self._handles:
            handle.remove()


class _AddNoise:
    """A forward hook: the output as if the layer's weights had been drawn for every example."""

    def __init__(self, logvar: Tensor) -> None:
        self.logvar = logvar

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if not module.training:
            return None
        squared, variance = args[0].square(), self.logvar.exp().to(args[0].dtype)
        if isinstance(module, _ConvNd):
            conv = _CONVOLUTIONS[variance.dim()]
            spread = conv(squared, variance, None, module.stride, module.padding, module.dilation, module.groups)  # type: ignore[operator]
        else:
            spread = F.linear(squared, variance)
        spread = spread.float() if spread.dtype == torch.float16 else spread  # which knows no number so small
        return output + torch.sqrt(spread + _TINY).to(output.dtype) * torch.randn_like(output)


class _BCStage(GateStage):
    """What both priors share: the Gaussian weights."""

    options = ("kl_weight",)

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        layers: dict[str, nn.Module] = {}
        for site in self.sites:
            for name in site.consumers:
                layer = graph.module(name)
                padded = isinstance(layer, _ConvNd) and layer.padding_mode != "zeros"
                if isinstance(layer, _ConvTransposeNd | nn.RNNBase) or padded:
                    raise UnprunableError(
                        f"Bayesian Compression has no weight noise for {name!r} ({type(layer).__name__}); keep "
                        f"{site.name!r} with prune.keep, or take another method"
                    )
                layers[name] = layer
        self.weights = GaussianWeights(layers)
        self.module = nn.ModuleDict({"factors": self.factors, "weights": self.weights})

    def penalty(self) -> Tensor:
        weight = self.settings.options.get("kl_weight", 1.0)
        return weight * (self.kl_of_scales() + self.weights.kl()) / self.context.dataset_size

    def kl_of_scales(self) -> Tensor:
        """KL of the scales from their prior."""
        raise NotImplementedError

    def clamp(self) -> None:
        self.weights.clamp_()
        for logvar in self.factors.logvars():
            horseshoe.clamp_(logvar)

    factors: Any

    def verdicts(self, values: Tensor, threshold: float) -> dict[str, Verdict]:
        """Channels whose value reaches the threshold go; the others fold their mean."""
        parts = [self.split(t.detach()) for t in (values, values >= threshold, self.factors.mean())]
        return {name: Verdict(*(part[name] for part in parts)) for name in self.names}

    def detach(self) -> None:
        super().detach()
        self.weights.detach()


class HorseshoeScale(ChannelFactor):
    """z_i = sqrt(s_a s_b a_i b_i), log-normal; one s_a and s_b per site."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        counts = (len(sizes), len(sizes), sum(sizes), sum(sizes))
        self.mu = nn.ParameterList(
            [nn.Parameter(torch.full((n,), m)) for n, m in zip(counts, horseshoe.MU_INIT, strict=True)]
        )
        self.logvar = nn.ParameterList([nn.Parameter(torch.full((n,), horseshoe.LOGVAR_INIT)) for n in counts])
        site = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        self.register_buffer("site", site, persistent=False)

    def moments(self) -> tuple[Tensor, Tensor]:
        """mu_z and var_z of every channel."""
        site: Tensor = self.site  # type: ignore[assignment]
        mu = [self.mu[0][site], self.mu[1][site], self.mu[2], self.mu[3]]
        logvar = [self.logvar[0][site], self.logvar[1][site], self.logvar[2], self.logvar[3]]
        return horseshoe.moments(mu, logvar)

    def draw(self, rows: int) -> Tensor:
        mu_z, var_z = self.moments()
        return horseshoe.sample(mu_z, var_z, torch.randn(rows, len(mu_z), device=mu_z.device))

    def mean(self) -> Tensor:
        return horseshoe.fold(*self.moments())

    def logvars(self) -> list[Tensor]:
        """What must stay in its range."""
        return list(self.logvar)


class HorseshoeStage(_BCStage):
    """BC-GHS, the paper's BC row; a channel goes when var_z - mu_z reaches the threshold."""

    diagnostic = "var z - mu z"
    THRESHOLD = 3.0
    factors: HorseshoeScale

    def make_factors(self, channels: int) -> HorseshoeScale:
        return HorseshoeScale([site.channels for site in self.sites])

    def kl_of_scales(self) -> Tensor:
        return horseshoe.kl_scales(list(self.factors.mu), list(self.factors.logvar))

    def judge(self) -> dict[str, Verdict]:
        threshold = self.THRESHOLD if self.settings.threshold is None else self.settings.threshold
        return self.verdicts(horseshoe.redundancy(*self.factors.moments()), threshold)


class JeffreysScale(ChannelFactor):
    """z ~ N(mu, exp logvar)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(jeffreys.MU_INIT + jeffreys.INIT_SD * torch.randn(channels))
        self.logvar = nn.Parameter(jeffreys.LOGVAR_INIT + jeffreys.INIT_SD * torch.randn(channels))

    def draw(self, rows: int) -> Tensor:
        return jeffreys.sample(self.mu, self.logvar, torch.randn(rows, len(self.mu), device=self.mu.device))

    def mean(self) -> Tensor:
        return jeffreys.fold(self.mu)

    def logvars(self) -> list[Tensor]:
        """What must stay in its range."""
        return [self.logvar]


class JeffreysStage(_BCStage):
    """BC-GNJ; a channel goes when log alpha reaches the threshold."""

    diagnostic = "log alpha"
    factors: JeffreysScale

    def make_factors(self, channels: int) -> JeffreysScale:
        return JeffreysScale(channels)

    def kl_of_scales(self) -> Tensor:
        return jeffreys.kl(jeffreys.log_alpha(self.factors.mu, self.factors.logvar)).sum()

    def judge(self) -> dict[str, Verdict]:
        threshold = jeffreys.THRESHOLD if self.settings.threshold is None else self.settings.threshold
        return self.verdicts(jeffreys.log_alpha(self.factors.mu, self.factors.logvar), threshold)
