"""Widths that hardware likes: by evidence, never to nothing, and with every method."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from rbprune import Pruner, trace
from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS
from rbprune.methods import PruningSettings, Verdict
from rbprune.methods.cost_target import cut_to_target
from rbprune.methods.cut import Proposal
from rbprune.methods.rounding import allowed_widths, keep_lowest, round_site, round_verdicts, spare_to_step
from rbprune.methods.settings import Target
from tests.networks import run_stages, tiny_cnn


def test_multiples_or_the_whole_width() -> None:
    assert allowed_widths(64, 16) == [16, 32, 48, 64]
    assert allowed_widths(5, 1) == [1, 2, 3, 4, 5]
    assert allowed_widths(8, 8) == [8]


@pytest.mark.parametrize("step", [2, 3, 8])
def test_the_cheaper_of_both_ways_by_counting_all_sets(step: int) -> None:
    """The independent computation: of all sets of an allowed size, that which loses least in worth."""
    generator = torch.Generator().manual_seed(step)
    for _ in range(40):
        values = torch.rand(10, generator=generator).double()
        bound = float(torch.rand(1, generator=generator))
        gone = values > bound
        if bool(gone.all()):
            continue
        rounded = round_site(values, gone, step, bound=bound)
        kept = 10 - int(gone.sum())
        widths = allowed_widths(10, step)
        near = {max((w for w in widths if w <= kept), default=None), min(w for w in widths if w >= kept)}

        def lost(stays: tuple[int, ...], values: Tensor = values, bound: float = bound) -> float:
            inside = torch.zeros(10, dtype=torch.bool)
            inside[list(stays)] = True
            worth = bound - values
            return float(worth[~inside & (worth > 0)].sum() - worth[inside & (worth < 0)].sum())

        best = min(lost(stays) for w in near if w for stays in itertools.combinations(range(10), w))
        assert lost(tuple((~rounded).nonzero().flatten().tolist())) == pytest.approx(best, abs=1e-12)


def test_the_evidence_decides_between_sparing_and_condemning() -> None:
    values = torch.tensor([0.0, 0.1, 0.49, 0.9, 0.95, 1.0])
    assert torch.equal(round_site(values, values > 0.5, 2, bound=0.5), keep_lowest(values, 2)), "0.49 hardly pays"
    values = torch.tensor([0.0, 0.1, 0.2, 0.51, 0.95, 1.0])
    assert torch.equal(round_site(values, values > 0.5, 2, bound=0.5), keep_lowest(values, 4)), "0.51 nearly pays"


def test_never_to_nothing_and_only_down_for_a_target() -> None:
    values = torch.arange(12.0)
    assert int((~round_site(values, values > 0, 8)).sum()) == 8, "one would stay: eight do"
    assert int((~round_site(values, values > 9, 8, bound=100.0, spare=False)).sum()) == 8
    assert int((~round_site(values, values > 2, 8, spare=False)).sum()) == 8, "nothing narrower is allowed"


def test_a_verdict_says_where_a_channel_is_worth_its_price() -> None:
    rank = torch.tensor([-2.0, -1.0, -0.9, 0.1])
    verdicts = {"a": Verdict(rank, rank > 0, bound=0.0)}
    assert torch.equal(round_verdicts(verdicts, {"a": rank > 0}, 2)["a"], torch.zeros(4, dtype=torch.bool))
    assert round_verdicts(verdicts, {"a": rank > 0}, 1)["a"].tolist() == [False, False, False, True]


def test_a_cut_that_is_taken_back_keeps_such_widths() -> None:
    ranks = {"a": torch.arange(16.0), "b": torch.arange(16.0)}
    gone = {name: rank >= 8 for name, rank in ranks.items()}
    found = Proposal(gone, {}, ranks, step=4).first(11)
    assert {name: 16 - int(mask.sum()) for name, mask in found.gone.items()} == {"a": 12, "b": 12}
    assert found.gone["a"].nonzero().flatten().tolist() == [12, 13, 14, 15]
    assert spare_to_step(ranks, gone, 1)["a"].equal(gone["a"])


@pytest.mark.parametrize("step", [2, 4, 8])
def test_a_target_is_met_with_rounded_widths(step: int) -> None:
    graph = trace(tiny_cnn(24), torch.zeros(1, 1, 8, 8))
    torch.manual_seed(step)
    values = {site.name: torch.rand(site.channels) for site in graph.sites}
    target = Target(MACS, graph.macs() / 2, step)
    gone = cut_to_target(graph, values, target, least=0.1)
    counts = {name: int(mask.sum()) for name, mask in gone.items()}
    assert graph.macs_without(counts) <= target.limit
    for name, count in counts.items():
        assert (graph[name].channels - count) in allowed_widths(graph[name].channels, step)
        assert torch.equal(gone[name], keep_lowest(values[name], graph[name].channels - count))
        wider = [w for w in allowed_widths(graph[name].channels, step) if w > graph[name].channels - count]
        if wider and graph.macs_without(counts) < 0.995 * target.limit:
            assert graph.macs_without({**counts, name: graph[name].channels - wider[0]}) > target.limit


def test_what_rounding_puts_out_of_reach_is_told() -> None:
    graph = trace(tiny_cnn(12), torch.zeros(1, 1, 8, 8))
    values = {site.name: torch.rand(site.channels) for site in graph.sites}
    cut_to_target(graph, values, Target(MACS, graph.macs() / 20), least=0.0)
    with pytest.raises(ConfigError, match=r"out of reach.*multiples of 8 \(prune.round_to\)"):
        cut_to_target(graph, values, Target(MACS, graph.macs() / 20, 8), least=0.0)


@pytest.mark.parametrize("method", ["uniform", "l1", "random", "thinet", "rbp", "ibp", "dds", "sbp", "tp-magnitude"])
@pytest.mark.parametrize("ratio", [None, 2.0])
def test_every_method_keeps_such_widths(method: str, ratio: float | None) -> None:
    told = {"uniform", "l1", "random", "thinet", "tp-magnitude"}
    if ratio is None and method in told:
        ratio = 1.5
    torch.manual_seed(0)
    model = tiny_cnn(16)
    settings = PruningSettings(method=method, round_to=4, macs_ratio=ratio)
    pruner = Pruner(model, torch.zeros(1, 1, 8, 8), dataset_size=100, settings=settings)
    dense = pruner.graph.macs()
    run_stages(pruner, model)
    for site in pruner.graph.sites:
        assert site.channels in allowed_widths(site.original, 4), f"{method}: {site.name} keeps {site.channels}"
    if ratio is not None:
        assert pruner.graph.macs() <= dense / ratio * (1 + 1e-9)
