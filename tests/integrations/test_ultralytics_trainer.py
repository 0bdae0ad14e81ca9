from __future__ import annotations

from typing import Any

import pytest
import torch

from rbprune.errors import ModelError
from rbprune.integrations.ultralytics_trainer import keep_widths, pruned_trainer, trainable
from tests.integrations.yolo_networks import make_yolo


@pytest.fixture
def trainer() -> Any:
    """One that knows its data and nothing else."""
    yolo = make_yolo()
    made: Any = pruned_trainer(yolo)
    assert issubclass(made, yolo.task_map["detect"]["trainer"])
    found = made.__new__(made)
    found.data = {"nc": 2}
    return found


def test_the_trainer_takes_the_network_as_it_is(trainer: Any) -> None:
    model = make_yolo().model.half().requires_grad_(False)
    found = trainer.get_model(cfg="yolov8n.yaml", weights=model)
    assert found is model
    assert {parameter.dtype for parameter in found.parameters()} == {torch.float32}
    assert [name for name, p in found.named_parameters() if not p.requires_grad] == ["model.22.dfl.conv.weight"]


def test_a_trainer_without_a_network_refuses(trainer: Any) -> None:
    with pytest.raises(ModelError, match="there is no pruned network to train: pretrained=False"):
        trainer.get_model(cfg="yolov8n.yaml", weights=None)


def test_a_trainer_with_data_of_other_classes_refuses(trainer: Any) -> None:
    with pytest.raises(ModelError, match="tells 3 classes, and the data has 2"):
        trainer.get_model(weights=make_yolo(classes=3).model)


def test_a_marked_network_cannot_be_built_anew_and_knows_its_widths() -> None:
    yolo = make_yolo()
    block, described = yolo.model.model[2], yolo.model.yaml
    block.c = 99
    keep_widths(yolo)
    assert block.c == 16
    assert yolo.ckpt["model"] is yolo.model
    assert described["backbone"][0][2] == "Conv", "other networks of the same description stay"
    with pytest.raises(KeyError, match="this network was pruned by rbprune.*pruned_trainer"):
        type(yolo.model)(yolo.model.yaml, verbose=False)
    assert trainable(yolo.model) is yolo.model
