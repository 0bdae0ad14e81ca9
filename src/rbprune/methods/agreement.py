"""Processes that train one network together compare it after every cut: what differs then would differ ever more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from rbprune.errors import ProcessesError
from rbprune.graph import ChannelGraph
from rbprune.utils import processes
from rbprune.utils.checksums import sha256
from rbprune.utils.state import tensor_sum

Sums = Mapping[str, str]
"""A checksum of every site, branch or tensor, by its name."""


def check_agreement(graph: ChannelGraph, names: Sequence[str]) -> None:
    """Refuse to go on where the processes removed other channels or have other weights, and name those that differ.

    ``names`` are the sites of the stage that has just been cut. All processes must call it.
    """
    if processes.world() == 1:
        return
    everywhere = processes.gathered((removal_sums(graph), weight_sums(graph)))
    for kind, what in enumerate(("lost other channels", "has other values")):
        found = find_disagreement([sums[kind] for sums in everywhere])
        if found is not None:
            ranks, name = found
            raise ProcessesError(
                f"after the cut of {', '.join(map(repr, names))} the processes no longer have the same network: "
                f"{name!r} {what} in {_called(ranks)} of {processes.world()}; all processes must start from the same "
                "weights, average their gradients (DistributedDataParallel), draw the same random numbers where a "
                "method chooses by chance, and finish a stage on the same batches"
            )


def _called(ranks: Sequence[int]) -> str:
    return f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def removal_sums(graph: ChannelGraph) -> dict[str, str]:
    """What has been removed of every site, and which branches, as checksums."""
    plan = graph.plan()
    found = {name: sha256(repr(site).encode()) for name, site in plan.sites.items()}
    return found | dict.fromkeys(plan.blocks, "removed")


def weight_sums(graph: ChannelGraph) -> dict[str, str]:
    """Every parameter and buffer of the network, shape and bits, as checksums."""
    state = graph.model.state_dict()
    return {name: tensor_sum(tensor) for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


def find_disagreement(everywhere: Sequence[Sums]) -> tuple[list[int], str] | None:
    """The processes that differ from what most have (of a tie, from the first), and the first name in which they do.

    >>> find_disagreement([{"a": "1"}, {"a": "1"}, {"a": "2"}]), find_disagreement([{"a": "1"}] * 2)
    (([2], 'a'), None)
    """
    whole = [repr(sorted(sums.items())) for sums in everywhere]
    usual = whole.index(Counter(whole).most_common(1)[0][0])
    ranks = [rank for rank, sums in enumerate(whole) if sums != whole[usual]]
    if not ranks:
        return None
    theirs, usual_sums = everywhere[ranks[0]], everywhere[usual]
    names = [*usual_sums, *(name for name in theirs if name not in usual_sums)]
    return ranks, next(name for name in names if theirs.get(name) != usual_sums.get(name))
