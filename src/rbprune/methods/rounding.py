"""Widths that hardware likes: every site keeps a multiple of some number of channels, or all of its channels.

A site that would keep another number is brought to the next such width below or above, whichever loses less. A channel
is worth keeping where its value (higher for a more redundant channel) is below the bound between what stays and what
goes; sparing a channel of value v, which is not worth its price, loses v - bound, and condemning one that is loses
bound - v. All channels of a site have the same price, so the sums can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rbprune.methods.verdict import Verdict


def allowed_widths(channels: int, step: int, least: int = 1) -> list[int]:
    """The widths that a site may have: multiples of ``step`` that keep ``least`` channels, and all of its channels.

    A site of one channel is a branch, which goes whole or stays.

    >>> allowed_widths(20, 8), allowed_widths(20, 8, least=10), allowed_widths(6, 8), allowed_widths(1, 8)
    ([8, 16, 20], [16, 20], [6], [0, 1])
    """
    if channels == 1:
        return [0, 1]
    multiples = range(step * max(1, math.ceil(least / step)), channels, step)
    return [*multiples, channels]


def keep_lowest(values: Tensor, number: int) -> Tensor:
    """Which channels go when the ``number`` of the lowest values stay.

    >>> keep_lowest(torch.tensor([3.0, 1.0, 2.0]), 2)
    tensor([ True, False, False])
    """
    gone = torch.ones(len(values), dtype=torch.bool)
    gone[values.detach().cpu().double().argsort(stable=True)[:number]] = False
    return gone


def round_site(
    values: Tensor, gone: Tensor, step: int, *, least: int = 1, bound: float | None = None, spare: bool = True
) -> Tensor:
    """Which channels of a site go when it keeps an allowed number, by the rule above.

    ``gone`` is what was to go; what is spared or condemned follows the order of ``values``. Without a ``bound`` it lies
    in the middle between the values of what stays and of what goes. Without ``spare`` channels are only condemned,
    where a narrower width is allowed: for a cut that has to reach a target.

    >>> values = torch.tensor([0.1, 0.2, 0.3, 0.45, 0.9, 0.95])
    >>> round_site(values, values > 0.4, step=2, bound=0.4)  # three would stay; 0.45 is nearer to the bound than 0.3
    tensor([False, False, False, False,  True,  True])
    """
    values, gone = values.detach().cpu().double(), gone.cpu()
    kept, widths = len(gone) - int(gone.sum()), allowed_widths(len(gone), step, least)
    if kept in widths:
        return gone.clone()
    if bound is None:
        bound = float((values[gone].min() + values[~gone].max()) / 2) if kept else float(values.min())
    above = min(width for width in widths if width > kept)
    below = max((width for width in widths if width < kept), default=None)
    order = torch.cat([_in_order(values, ~gone), _in_order(values, gone)])  # what stays first, best first
    if below is None or (spare and _loss(values[order[kept:above]], bound) <= -_loss(values[order[below:kept]], bound)):
        stays = order[:above]
    else:
        stays = order[:below]
    rounded = torch.ones(len(gone), dtype=torch.bool)
    rounded[stays] = False
    return rounded


def round_verdicts(
    verdicts: Mapping[str, Verdict], gone: Mapping[str, Tensor], step: int, *, spare: bool = True
) -> dict[str, Tensor]:
    """Which channels of each site go when every site keeps an allowed number, by the ranking of its verdict."""
    if step == 1:
        return dict(gone)
    found = {}
    for name, mask in gone.items():
        ranks, bound = verdicts[name].ranking, verdicts[name].bound
        found[name] = round_site(ranks, mask, step, bound=bound, spare=spare).to(mask.device)
    return found


def spare_to_step(ranks: Mapping[str, Tensor], gone: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
    """Spare channels, best first, until every site keeps an allowed number: for a cut that was taken back in part."""
    found = {}
    for name, mask in gone.items():
        kept = len(mask) - int(mask.sum())
        wider = min(width for width in allowed_widths(len(mask), step) if width >= kept)
        places = _in_order(ranks[name].detach().cpu().double(), mask.cpu())
        found[name] = mask.clone()
        found[name][places[: wider - kept]] = False
    return found


def _in_order(values: Tensor, mask: Tensor) -> Tensor:
    """The places of the mask, the lowest value first."""
    places = mask.nonzero().flatten()
    return places[values[places].argsort(stable=True)]


def _loss(values: Tensor, bound: float) -> float:
    """What sparing these channels loses."""
    return float((values - bound).sum())
