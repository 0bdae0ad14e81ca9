from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from rbprune.errors import ModelError
from rbprune.models import ZOO, build, example_input, import_torchvision

MINE = """
import torch
from torch import nn
from helper import WIDTH
def make(classes=5): return nn.Linear(WIDTH, classes)
def fixed(): return nn.Linear(WIDTH, 3)
def broken(): raise ValueError("no luck")
def number(): return 5
def example_inputs(): return (torch.ones(2, WIDTH),)
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("WIDTH = 4")
    (tmp_path / "mine.py").write_text(MINE)
    return str(tmp_path / "mine.py")


@pytest.mark.parametrize("name", [*ZOO, "torchvision:resnet18"])
def test_every_model_runs_its_example(name: str) -> None:
    model = build(name, classes=7)
    state = torch.get_rng_state()
    x = example_input(name, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(x) == 2
    with torch.no_grad():
        assert model(x).shape == (2, 7)


def test_the_names_are_these() -> None:
    padded = [f"resnet{d}-cifar" for d in (20, 32, 44, 56, 110)]
    assert list(ZOO) == ["lenet5", "vgg16-cifar", *padded, "resnet20b-cifar", "resnet56b-cifar"]


def test_the_example_has_the_type_of_the_model_and_the_shape_asked_for() -> None:
    model = build("lenet5").double()
    assert example_input("lenet5", model).dtype == torch.float64
    assert example_input("lenet5", model, (1, 40, 40)).shape == (2, 1, 40, 40)
    assert torch.equal(example_input("lenet5", model), example_input("lenet5", model))


def test_an_unknown_name_is_answered_with_the_near_one() -> None:
    message = r"unknown model 'resnet20'; did you mean 'resnet20-cifar'\? \(known: lenet5, .*path/file.py:factory"
    with pytest.raises(ModelError, match=message):
        build("resnet20")
    with pytest.raises(ModelError, match=message):
        example_input("resnet20", nn.Linear(1, 1))
    with pytest.raises(ModelError, match=r"'torchvision:resnet19'; did you mean 'resnet1"):
        build("torchvision:resnet19")


def test_options_that_do_not_exist_are_named() -> None:
    with pytest.raises(ModelError, match=r"model 'lenet5': .*unexpected keyword argument 'width'"):
        build("lenet5", width=2)
    with pytest.raises(ModelError, match=r"'torchvision:resnet18' with \{'width': 2\}"):
        build("torchvision:resnet18", width=2)


def test_pretrained_torchvision_weights_have_their_own_classes() -> None:
    with pytest.raises(ModelError, match="for their own classes"):
        build("torchvision:resnet18", classes=10, weights="torchvision")
    with pytest.raises(ModelError, match="needs a model named 'torchvision:<model>'"):
        build("lenet5", weights="torchvision")


@pytest.mark.parametrize(("weights", "asked"), [("torchvision", "V2"), ("torchvision:IMAGENET1K_V1", "V1")])
def test_pretrained_torchvision_weights_by_name(monkeypatch: pytest.MonkeyPatch, weights: str, asked: str) -> None:
    urls: list[str] = []
    models = import_torchvision().models

    def fetch(url: str, **_: object) -> dict[str, torch.Tensor]:
        urls.append(url)
        return models.resnet50().state_dict()

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    build("torchvision:resnet50", weights=weights)
    assert urls == [models.ResNet50_Weights[f"IMAGENET1K_{asked}"].url]


def test_weights_that_torchvision_does_not_offer_are_refused() -> None:
    with pytest.raises(ModelError, match=r"has no weights 'V9'; it has: IMAGENET1K_V1, IMAGENET1K_V2"):
        build("torchvision:resnet50", weights="torchvision:V9")


def test_pretrained_weights_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", fail)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    with pytest.raises(ModelError, match="cannot be fetched: no network; check the network"):
        build("torchvision:resnet18", weights="torchvision")


def test_the_users_own_factory(mine: str) -> None:
    model = build(f"{mine}:make", classes=6)
    assert model.out_features == 6
    assert build(f"{mine}:make").out_features == 5
    assert build(f"{mine}:fixed", classes=6).out_features == 3, "classes is not passed to who does not take it"
    assert torch.equal(example_input(f"{mine}:make", model.double()), torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"mine\.py:broken\(\) failed: ValueError: no luck"),
        ("number", r"mine\.py:number\(\) returned int; it must return a torch\.nn\.Module"),
        ("fixd", r"has no function 'fixd'; did you mean 'fixed'\?"),
    ],
)
def test_a_factory_that_fails_is_named(mine: str, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(f"{mine}:{name}")


def test_without_example_inputs_a_shape_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("from torch import nn\ndef make(): return nn.Linear(3, 2)\n")
    model = build(f"{file}:make")
    with pytest.raises(ModelError, match="pass the shape of one example, or add a function example_inputs"):
        example_input(f"{file}:make", model)
    assert example_input(f"{file}:make", model, (3,)).shape == (2, 3)
    file.write_text("from torch import nn\ndef make(): return nn.Linear(3, 2)\ndef example_inputs(): return 5\n")
    with pytest.raises(ModelError, match=r"net\.py:example_inputs\(\) returned int"):
        example_input(f"{file}:make", model)
