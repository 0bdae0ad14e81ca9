"""The model card, read by the hub's own library."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import ModelCard

from rbprune.export.card import model_card

FILE = {
    "format": "onnx",
    "int8": False,
    "batch": "dynamic",
    "bytes": 123456,
    "difference": 1e-6,
    "checked_on": "stripes",
}
INT8 = {**FILE, "int8": True, "calibrated_on": 256, "errors": {"before": 7.0, "after": 7.25, "data": "validation data"}}
SUMMARY = {
    **{"method": "rbp", "metric": "error", "error_before": 6.5, "error_after": 7.0},
    **{"macs_before": 300_000_000, "macs_after": 100_000_000, "macs_ratio": 3.0},
    **{"params_before": 2000, "params_after": 500, "params_ratio": 4.0},
    "measured_latency": {"batch": 1, "dense_ms": 4.0, "pruned_ms": 2.0, "ratio": 2.0, "machine": "a machine"},
}


def config(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        **{"model": 'my "net": a #1', "rbprune_version": "0.1.0", "input_shape": [3, 32, 32]},
        **{"inputs": ["image"], "outputs": ["output"], "keywords": []},
        **{"files": {"model.onnx": FILE, "model_int8.onnx": INT8}, "data": {"name": "cifar10"}, "summary": SUMMARY},
    }
    return found | changes


def test_the_hub_reads_the_metadata() -> None:
    data = ModelCard(model_card(config())).data
    assert (data.pipeline_tag, data.datasets, data.metrics) == (
        "image-classification",
        ["uoft-cs/cifar10"],
        ["accuracy"],
    )
    assert data.model_name == 'my "net": a #1'
    assert [(r.dataset_type, r.metric_type, r.metric_value) for r in data.eval_results] == [
        ("uoft-cs/cifar10", "accuracy", 93.0)
    ]


def test_the_card_says_error_costs_latency_and_how_to_load() -> None:
    text = model_card(config())
    for row in (
        "| error (test) | 6.50 % | 7.00 % |  |",
        "| MACs, one example | 300.0 M | 100.0 M | 3.00x |",
        "| weights | 2.0 k | 500 | 4.00x |",
        "| latency, batch 1 | 4 ms | 2 ms | 2.00x |",
    ):
        assert row in text
    assert "Latency on a machine" in text
    assert "error 7.00 % -> 7.25 % on validation data" in text
    assert 'session.run(None, {"image": images})' in text
    assert "3 x 32 x 32" in text


@pytest.mark.parametrize("summary", [{}, {"metric": "loss", "error_after": 0.5}])
def test_what_is_unknown_is_not_claimed(summary: dict[str, Any]) -> None:
    data = ModelCard(model_card(config(summary=summary, data={"name": "loader"}))).data
    assert (data.pipeline_tag, data.eval_results, data.datasets) == (None, None, None)
