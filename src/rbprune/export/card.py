"""The model card: ``README.md`` with the block of metadata that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rbprune.models import ZOO
from rbprune.utils.numbers import as_number, count, decimal, ratio, score

HUB_DATASETS = {"mnist": "ylecun/mnist", "mnist-subset": "ylecun/mnist", "cifar10": "uoft-cs/cifar10"}
"""Data that has a name on the hub."""
LOADING = {
    "onnx": """import onnxruntime
session = onnxruntime.InferenceSession("{file}")
outputs = session.run(None, {{"{input}": images}})  # images: float32 numpy array""",
    "pt2": """import torch
model = torch.export.load("{file}").module()
outputs = model({keyword}images)  # images: float32 tensor""",
    "openvino": """import openvino
model = openvino.Core().compile_model("{file}", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
outputs = model({{"{input}": images}})  # images: float32 numpy array""",
    "safetensors": """import rbprune
model = rbprune.load(".", {fresh})  # a new instance of the dense network
outputs = model(images)""",
}
"""How a file is loaded and run, by format, in three lines."""


def model_card(config: Mapping[str, Any]) -> str:
    """The card of an exported folder, from what its ``config.json`` says."""
    parts = [
        _metadata(config),
        _introduction(config),
        _results(config),
        _files(config),
        _loading(config),
        _licence(config),
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(config: Mapping[str, Any]) -> str:
    """The block of YAML at the top; values are written as JSON, which YAML includes."""
    summary, formats = config.get("summary") or {}, {file["format"] for file in config["files"].values()}
    classifies = summary.get("metric") == "error" and as_number(summary.get("error_after")) is not None
    data = str((config.get("data") or {}).get("name") or "")
    fields: dict[str, Any] = {
        "license": config.get("license") or "unknown",
        "library_name": "rbprune",
        "tags": ["pruning", "channel-pruning", "pytorch", *sorted(formats & {"onnx", "openvino"})],
    }
    if classifies:
        fields |= {"pipeline_tag": "image-classification", "metrics": ["accuracy"]}
    if data in HUB_DATASETS:
        fields["datasets"] = [HUB_DATASETS[data]]
    if classifies:
        fields["model-index"] = [_index(config["model"], data, summary)]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in fields.items()), "---"])


def _index(name: str, data: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    accuracy = {"type": "accuracy", "value": round(100 - summary["error_after"], 4), "name": "top-1 accuracy, per cent"}
    dataset = {"type": HUB_DATASETS.get(data, "custom"), "name": data or "unknown"}
    return {
        "name": name,
        "results": [{"task": {"type": "image-classification"}, "dataset": dataset, "metrics": [accuracy]}],
    }


def _introduction(config: Mapping[str, Any]) -> str:
    summary = config.get("summary") or {}
    method = f" by the method `{summary['method']}`" if summary.get("method") else ""
    data = (config.get("data") or {}).get("name")
    trained = f" on `{data}`" if data and data != "loader" else ""
    return (
        f"# {config['model']}, pruned\n\n"
        f"A convolutional network (`{config['model']}`), trained{trained}, from which whole channels were removed"
        f"{method} with rbprune {config['rbprune_version']}. What is left is a smaller network of the same "
        "class: it needs no sparse kernels and no special runtime."
    )


def _results(config: Mapping[str, Any]) -> str:
    summary = config.get("summary") or {}
    metric = str(summary.get("metric") or "error")
    rows = [("", "dense", "pruned", "ratio")]
    if as_number(summary.get("error_after")) is not None:
        rows.append(
            (f"{metric} (test)", score(summary.get("error_before"), metric), score(summary["error_after"], metric), "")
        )
    for key, label in (("macs", "MACs, one example"), ("params", "weights")):
        if as_number(summary.get(f"{key}_after")) is not None:
            before, after = count(summary.get(f"{key}_before")), count(summary[f"{key}_after"])
            rows.append((label, before, after, ratio(summary.get(f"{key}_ratio"))))
    timed = summary.get("measured_latency")
    if timed:
        before, after = (f"{decimal(timed[key])} ms" for key in ("dense_ms", "pruned_ms"))
        rows.append((f"latency, batch {timed['batch']}", before, after, ratio(timed["ratio"])))
    if len(rows) == 1:
        return "## Results\n\nNothing was measured of this network when it was exported."
    where = f"\n\nLatency on {timed['machine']}, PyTorch eager." if timed else ""
    return "## Results\n\n" + _table(rows) + where


def _files(config: Mapping[str, Any]) -> str:
    rows = [("file", "format", "batch", "size", "checked")]
    for name, file in config["files"].items():
        size = f"{decimal(file['bytes'] / 1e6)} MB"
        rows.append(
            (
                f"`{name}`",
                f"{file['format']}{', 16 bits' if file.get('half') else ''}{', int8' if file['int8'] else ''}",
                str(file["batch"]),
                size,
                _checked(file),
            )
        )
    return (
        "## Files\n\n"
        + _table(rows)
        + "\n\n`plan.json` says which channels were kept; `config.json` holds these figures."
    )


def _checked(file: Mapping[str, Any]) -> str:
    errors = file.get("errors")
    told = f"calibrated on {file['calibrated_on']} training images; " if file["int8"] else ""
    if errors:
        return f"{told}error {errors['before']:.2f} % -> {errors['after']:.2f} % on {errors['data']}"
    return f"{told}differs from PyTorch by {file['difference']:.1e} of the largest output, on {file['checked_on']}"


def _loading(config: Mapping[str, Any]) -> str:
    first = next(iter(config["inputs"]), "input")
    keyword = f"{first}=" if config.get("keywords") else ""
    blocks = []
    for name, file in config["files"].items():
        code = LOADING[file["format"]].format(file=name, input=first, keyword=keyword, fresh=_fresh(config))
        blocks.append(f"`{name}`:\n\n```python\n{code}\n```")
    shape = config.get("input_shape")
    size = f" One example has the shape {' x '.join(map(str, shape))}." if shape else ""
    names = (
        f"Inputs: {', '.join(config['inputs'])}. Outputs: {', '.join(config['outputs'])}.{size}"
        if config["inputs"]
        else ""
    )
    return "\n\n".join(["## Loading", *([names] if names else []), *blocks])


def _fresh(config: Mapping[str, Any]) -> str:
    """The expression that builds the dense network: ours by their names, anybody else's by a name to fill in."""
    name = str(config["model"])
    if name not in ZOO and not name.startswith("torchvision:"):
        return "FreshModel()"
    classes = f", classes={config['classes']}" if config.get("classes") else ""
    return f'rbprune.models.build("{name}"{classes})'


def _licence(config: Mapping[str, Any]) -> str:
    if config.get("license"):
        return f"## Licence\n\nOf the weights: {config['license']}."
    return (
        "## Licence\n\nNot chosen yet: write the licence of the weights here, and its identifier into the first block."
    )


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * (lines[0].count("|") - 1), *lines[1:]])
