from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rbprune.bayes.likelihood import SecondDerivative
from rbprune.errors import ConfigError, DataError
from rbprune.integrations.ultralytics_batches import (
    DetectionLoss,
    check_dataset,
    example_images,
    make_batches,
    training_arguments,
)
from tests.integrations.yolo_networks import draw_shapes, make_yolo


@pytest.fixture(scope="module", params=[False, True], ids=["detect", "segment"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    data = draw_shapes(tmp_path_factory.mktemp("shapes") / "data", images=8, segment=request.param)
    yolo = make_yolo("yolov8n-seg" if request.param else "yolov8n")
    arguments = training_arguments(yolo, data, {"imgsz": 64, "batch": 4})
    return yolo, arguments, check_dataset(yolo.model, arguments)


def test_batches_are_images_between_0_and_1_and_dictionaries_of_targets(prepared: tuple[Any, Any, Any]) -> None:
    yolo, arguments, facts = prepared
    batches = make_batches(yolo.model, arguments, facts, "train")
    assert (len(batches), len(batches.dataset)) == (2, 8)
    for _ in range(2):  # again for every epoch
        images, targets = next(iter(batches))
        assert images.shape == (4, 3, 64, 64)
        assert 0 <= float(images.min()) < 0.5 < float(images.max()) <= 1
        assert {"batch_idx", "cls", "bboxes"} <= set(targets)
        assert ("masks" in targets) == (yolo.task == "segment")
    assert example_images(arguments, facts).shape == (1, 3, 64, 64)


def test_mosaics_are_over_unless_they_are_asked_for(prepared: tuple[Any, Any, Any]) -> None:
    yolo, arguments, facts = prepared
    chances = []
    for mosaics in (False, True):
        dataset = make_batches(yolo.model, arguments, facts, "train", mosaics=mosaics).dataset
        mosaic = dataset.transforms.transforms[0].transforms[0]
        assert type(mosaic).__name__ == "Mosaic"
        chances.append(mosaic.p)
    assert chances == [0.0, 1.0]
    assert arguments.mosaic == 1.0, "the arguments stay as they were given"


def test_the_loss_is_that_of_the_network_for_one_example(prepared: tuple[Any, Any, Any]) -> None:
    yolo, arguments, facts = prepared
    images, targets = next(iter(make_batches(yolo.model, arguments, facts, "train")))
    before = yolo.model.args
    loss = DetectionLoss(yolo.model, arguments)
    yolo.model.train()
    outputs = yolo.model(images)
    found = loss(outputs, targets)
    assert yolo.model.args is before
    yolo.model.args = arguments
    expected, _ = yolo.model.loss({**targets, "img": images}, outputs)
    yolo.model.args, yolo.model.criterion = before, None
    torch.testing.assert_close(found, expected.sum() / 4)
    yolo.model.eval()
    assert torch.isfinite(loss(yolo.model(images), targets)), "outputs of evaluation hold the raw ones too"


def test_its_curvature_is_that_of_finite_differences(prepared: tuple[Any, Any, Any]) -> None:
    yolo, arguments, facts = prepared
    images, targets = next(iter(make_batches(yolo.model, arguments, facts, "train")))
    loss = DetectionLoss(yolo.model, arguments)
    yolo.model.train()
    with torch.no_grad():
        outputs = yolo.model(images)
    loss(outputs, targets)
    criterion, kept = loss._criterion, []
    assign = criterion.assigner
    criterion.assigner = lambda *args: kept[0] if kept else kept.append(assign(*args)) or kept[0]  # a constant, for it
    pair = SecondDerivative(loss).pair(outputs, targets, examples=4)
    assert pair is not None
    assert list(outputs)[1] == "scores", "after the boxes"
    xi, curved = pair[0][1], pair[1][1]

    def slope(shift: float) -> Tensor:
        scores = (outputs["scores"] + shift * xi).requires_grad_()
        (found,) = torch.autograd.grad(loss({**outputs, "scores": scores}, targets), scores)
        return found

    expected = 4 * (slope(0.05) - slope(-0.05)) / 0.1
    torch.testing.assert_close(curved, expected, rtol=0.02, atol=0.005 * float(expected.abs().max()))
    unused = [x for x in pair[0] if not bool(x.any())]
    assert len(unused) >= 3, "the maps that the head hands out beside its predictions"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 3}, "does not take epochs = 3"),
        ({"imgzs": 64}, "Ultralytics refuses the arguments .*imgzs"),
        ({"batch": "many"}, "Ultralytics refuses the arguments .*many"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        training_arguments(make_yolo(), "data.yaml", given)


def test_data_with_other_classes_are_refused(tmp_path: Path) -> None:
    yolo = make_yolo(classes=3)
    arguments = training_arguments(yolo, draw_shapes(tmp_path / "data", images=4), {"imgsz": 64})
    with pytest.raises(DataError, match="has 2 classes, and the network tells 3"):
        check_dataset(yolo.model, arguments)


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    yolo = make_yolo()
    with pytest.raises(DataError, match="cannot use data = .*nowhere.yaml"):
        check_dataset(yolo.model, training_arguments(yolo, str(tmp_path / "nowhere.yaml"), {}))
