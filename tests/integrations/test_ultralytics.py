"""A YOLO network is pruned by its own loss, and stays one that Ultralytics loads, validates, trains and exports."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import rbprune
from rbprune.errors import ConfigError, ModelError
from rbprune.integrations import ultralytics as module
from rbprune.integrations.ultralytics import YoloResult, keep_widths, prune_yolo, pruned_trainer
from rbprune.integrations.ultralytics_package import import_ultralytics
from tests.integrations.yolo_networks import NETWORKS, QUIET, draw_shapes, make_yolo, random_statistics


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return draw_shapes(tmp_path_factory.mktemp("shapes") / "data")


@pytest.fixture(scope="module")
def pruned(data: str) -> YoloResult:
    """A network without 1.5x of its MACs; tests that change it take a copy."""
    return prune_yolo(make_yolo(), data, macs_ratio=1.5, method="uniform", imgsz=64, batch=8)


@pytest.fixture
def yolo(pruned: YoloResult) -> Any:
    return copy.deepcopy(pruned.yolo)


def shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def boxes(model: Any) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(torch.linspace(0, 1, 3 * 64 * 64).view(1, 3, 64, 64))[0]


def test_the_ratio_is_met_and_the_scores_are_those_of_ultralytics(pruned: YoloResult) -> None:
    assert pruned.result.summary["macs_ratio"] == pytest.approx(1.5, rel=0.01)
    assert pruned.result.summary["metric"] == "loss"
    assert set(pruned.scores) == {"dense", "pruned"}
    assert "metrics/mAP50-95(B)" in pruned.scores["dense"]
    assert pruned.verdict.level == "unknown", "an untrained network finds nothing"
    assert "train it first" in str(pruned)


@pytest.mark.parametrize(
    ("dense", "now", "level", "told"),
    [
        (0.5, 0.495, "good", "mAP50-95(B) 49.5, of the dense network 50.0"),
        (0.5, 0.48, "bad", "fine-tune it, yolo.train(trainer=pruned_trainer(yolo), ...), or prune less"),
        (0.001, 0.0, "unknown", "a network that finds nothing has nothing to lose"),
    ],
)
def test_the_verdict_is_on_the_mean_average_precision(
    pruned: YoloResult, dense: float, now: float, level: str, told: str
) -> None:
    name = "metrics/mAP50-95(B)"
    verdict = replace(pruned, scores={"dense": {name: dense}, "pruned": {name: now}}).verdict
    assert verdict.level == level
    assert told in verdict.text


def test_a_ratio_that_was_missed_is_a_bad_verdict(pruned: YoloResult) -> None:
    text = "4x fewer MACs were asked for, and 3.00x reached"
    result = replace(pruned.result, summary={**pruned.result.summary, "verdict": {"level": "bad", "text": text}})
    assert replace(pruned, result=result).verdict.text.startswith(text)


def test_a_saved_network_is_loaded_by_ultralytics_and_predicts_the_same(yolo: Any, tmp_path: Path) -> None:
    yolo.save(tmp_path / "pruned.pt")
    again = import_ultralytics().YOLO(tmp_path / "pruned.pt")
    yolo.model.half().float()  # Ultralytics saves in half precision
    assert shapes(again.model) == shapes(yolo.model)
    torch.testing.assert_close(boxes(again.model), boxes(yolo.model), rtol=0, atol=0)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    found = [each.predict(image, imgsz=64, verbose=False, conf=1e-9)[0].boxes.data for each in (yolo, again)]
    assert len(found[0])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_the_file_needs_no_rbprune_and_passes_the_restricted_loader(yolo: Any, tmp_path: Path) -> None:
    yolo.save(tmp_path / "pruned.pt")
    named = torch.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "pruned.pt")
    assert named
    assert not [name for name in named if "rbprune" in name]
    from ultralytics.nn.tasks import torch_safe_load

    loaded, _ = torch_safe_load(str(tmp_path / "pruned.pt"), safe_only=True)
    assert shapes(loaded["model"]) == shapes(yolo.model)


def test_ultralytics_goes_on_training_the_widths_that_are_left(yolo: Any, data: str, tmp_path: Path) -> None:
    before, weight = shapes(yolo.model), yolo.model.model[0].conv.weight.detach().clone()
    yolo.train(trainer=pruned_trainer(yolo), data=data, epochs=1, project=str(tmp_path), name="run", **QUIET)
    assert shapes(yolo.model) == before
    assert not torch.equal(yolo.model.model[0].conv.weight, weight)
    again = import_ultralytics().YOLO(tmp_path / "run" / "weights" / "best.pt")
    assert shapes(again.model) == before
    metrics = again.val(data=data, project=str(tmp_path), name="val", **QUIET)
    assert 0 <= metrics.box.map <= 1
    with pytest.raises(KeyError, match="pruned_trainer"):
        again.train(data=data, epochs=1, project=str(tmp_path), name="wide", **QUIET)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # of Ultralytics' own exporter
def test_the_onnx_file_of_ultralytics_agrees(yolo: Any, tmp_path: Path) -> None:
    import onnxruntime

    yolo.model.pt_path = str(tmp_path / "pruned.pt")  # beside which it is written
    path = yolo.export(format="onnx", imgsz=64, simplify=False, verbose=False)
    image = torch.linspace(0, 1, 3 * 64 * 64).view(1, 3, 64, 64)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), boxes(yolo.model), rtol=1e-4, atol=1e-3)


def test_our_own_folder_is_loaded_into_a_fresh_network(pruned: YoloResult, data: str, tmp_path: Path) -> None:
    pruned.result.save(tmp_path / "folder")
    fresh = make_yolo()
    rbprune.load(tmp_path / "folder", fresh.model)
    torch.testing.assert_close(boxes(fresh.model), boxes(pruned.yolo.model), rtol=0, atol=0)
    keep_widths(fresh)
    again = replace(pruned, yolo=fresh)
    assert again.judge().text == pruned.verdict.text


def test_a_network_that_is_not_the_pruned_one_is_not_judged(pruned: YoloResult) -> None:
    with pytest.raises(ModelError, match="not the pruned one any more"):
        replace(pruned, yolo=make_yolo()).judge()


def test_pruning_again_goes_further(yolo: Any, data: str) -> None:
    result = prune_yolo(yolo, data, macs_ratio=1.2, method="l1", imgsz=64, batch=8).result
    assert result.summary["macs_ratio"] == pytest.approx(1.2, rel=0.01)
    assert result.summary["macs_ratio_total"] == pytest.approx(1.8, rel=0.02)


def test_a_fused_network_is_refused() -> None:
    yolo = make_yolo()
    yolo.model.fuse(verbose=False)
    with pytest.raises(ModelError, match="the network is fused.*load the .pt file again"):
        prune_yolo(yolo, "data.yaml")


def test_other_tasks_are_refused_by_name() -> None:
    yolo = import_ultralytics().YOLO("yolov8n-cls.yaml")
    with pytest.raises(ModelError, match="detect and segment; this network is for 'classify'"):
        prune_yolo(yolo, "data.yaml")


def test_what_is_no_yolo_is_refused() -> None:
    with pytest.raises(ModelError, match="it got a Linear"):
        prune_yolo(torch.nn.Linear(2, 2), "data.yaml")


def test_unknown_data_are_asked_for() -> None:
    with pytest.raises(ConfigError, match="does not know its training data"):
        prune_yolo(make_yolo())


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.processes, "world", lambda: 2)
    with pytest.raises(ConfigError, match="2 train together here"):
        prune_yolo(make_yolo(), "data.yaml")


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


SITES = {"yolov8n": (48, 54, 64), "yolo11n": (56, 67, 88), "yolov8n-seg": (57, 63, 77), "yolo11n-seg": (65, 76, 101)}
"""Sites, convolutions whose outputs are in one, and all convolutions: as docs/yolo.md has them."""


@pytest.mark.parametrize("name", ["yolov8n", *(pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS[1:])])
def test_removed_is_masked(name: str, double: None) -> None:
    """Half of the channels of every site, removed at once: the predictions are those with zeros in their place."""
    model = random_statistics(make_yolo(name).model).double()
    images = torch.randn(2, 3, 64, 64)
    graph = rbprune.trace(model, images)
    convolutions = {name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Conv2d)}
    convolutions |= {name for name, layer in model.named_modules() if isinstance(layer, torch.nn.ConvTranspose2d)}
    produced = {name for site in graph.sites for name in site.producers}
    assert (len(graph.sites), len(produced & convolutions), len(convolutions)) == SITES[name]
    drop = {site.name: torch.randperm(site.channels)[: site.channels // 2].tolist() for site in graph.sites}
    model.eval()
    with torch.no_grad():
        whole = tree_leaves(model(images))
        with graph.mask(drop):
            masked = tree_leaves(model(images))
        graph.remove(drop)
        removed = tree_leaves(model(images))
    assert not torch.allclose(whole[0], masked[0])
    assert [tuple(z.shape) for z in removed] == [tuple(z.shape) for z in masked]
    for left, right in zip(removed, masked, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_pruned_by_its_own_loss(name: str, tmp_path: Path) -> None:
    data = draw_shapes(tmp_path / "data", segment=name.endswith("-seg"))
    yolo = make_yolo(name)
    result = prune_yolo(yolo, data, macs_ratio=1.5, imgsz=64, batch=8, options=["prune.epochs=20"]).result
    assert result.summary["macs_ratio"] == pytest.approx(1.5, rel=0.02)
    yolo.train(trainer=pruned_trainer(yolo), data=data, epochs=1, project=str(tmp_path), name="run", **QUIET)
    yolo.save(tmp_path / "pruned.pt")
    again = import_ultralytics().YOLO(tmp_path / "pruned.pt")
    assert shapes(again.model) == shapes(result.model)
    image = torch.rand(1, 3, 64, 64)
    path = again.export(format="onnx", imgsz=64, simplify=False, verbose=False)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    again.model.eval()
    with torch.no_grad():
        expected = again.model(image)[0]
    for left, right in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(torch.from_numpy(left), right, rtol=1e-4, atol=1e-3)
