"""What a stage knew of every channel when it judged, and what became of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from rbprune import Price, Pruner, trace
from rbprune.methods.channel_record import ChannelEvidence, JudgedSite, after_cut, record_sites
from rbprune.methods.verdict import Verdict
from tests.networks import learn_stripes, stripes, tiny_cnn, train_stage


def finished(method: str, **options: Any) -> tuple[Pruner, list[Any]]:
    model = tiny_cnn()
    learn_stripes(model)
    images, labels = stripes(128)
    pruner = Pruner(model, images[:2], dataset_size=512, method=method, price=Price(nats=20), **options)
    results = []
    for stage in pruner:
        train_stage(stage, images, labels, 30)
        results.append(stage.finish())
    return pruner, results


@pytest.mark.parametrize(
    ("method", "options"), [("rbp", {}), ("uniform", {"macs_ratio": 2}), ("taylor", {"macs_ratio": 2})]
)
def test_every_channel_of_every_stage_has_its_verdict(method: str, options: dict[str, Any]) -> None:
    pruner, results = finished(method, **options)
    for result in results:
        for name, record in result.records.items():
            before, after = result.channels[name]
            words = record.verdicts()
            assert (len(words), words.count("goes")) == (before, before - after)
            kept = [c for c, word in zip(record.channels, words, strict=True) if word != "goes"]
            assert kept == pruner.graph[name].alive.tolist()
            assert (record.evidence is None) == (method != "rbp")
            assert json.loads(json.dumps(record.to_dict()))["verdict"] == words


def test_the_saving_is_that_of_the_network_before_the_cut() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    whole = (graph.macs(), graph.params())
    gone = torch.tensor([True, False, False, True, False, False])
    records = record_sites(graph, {"0": Verdict(torch.arange(6.0), gone)}, {"0": gone}, {})
    graph.remove({"0": [0, 3]})
    saved = (whole[0] - graph.macs(), whole[1] - graph.params())
    assert (2 * records["0"].saving["macs"], 2 * records["0"].saving["params"]) == pytest.approx(saved)
    assert after_cut(records, graph)["0"].gone.tolist() == gone.tolist()


def test_what_was_to_go_and_stayed_was_taken_back() -> None:
    doubt = torch.tensor([False, True, True, False])
    evidence = ChannelEvidence(torch.tensor([1.0, 19.0, 21.0, 1 / 3]), torch.full((4,), 20.0), doubt)
    asked, gone = torch.tensor([True, False, True, True]), torch.tensor([True, False, False, False])
    record = JudgedSite((0, 1, 4, 5), torch.zeros(4), asked, {"macs": 3.0}, evidence, gone)
    assert record.verdicts() == ["goes", "undecided", "taken back", "taken back"]
    told = record.to_dict()
    assert told["evidence"] == [1.0, 19.0, 21.0, 0.333333] and told["error"] is None
    assert (told["channels"], told["saving"]) == ([0, 1, 4, 5], {"macs": 3.0})
