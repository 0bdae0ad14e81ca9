"""Models of timm by name, and the images that they want."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from rbprune.data.image import ImageLook, transform
from rbprune.errors import ConfigError, ModelError
from rbprune.models import build, example_input
from rbprune.models.registry import is_users_code
from rbprune.models.timm_models import timm_images
from rbprune.utils.extras import import_extra
from rbprune.utils.state import state_tensors

NAME = "timm:test_resnet"


def test_a_model_is_built_with_its_classes_and_its_example() -> None:
    model = build(NAME, classes=7)
    example = example_input(NAME, model)
    assert example.shape == (2, 3, 160, 160)
    assert model.eval()(example).shape == (2, 7)


def test_weights_of_a_file_are_loaded(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    first = build(NAME, classes=3)
    save_file(state_tensors(first), tmp_path / "w.safetensors")
    again = build(NAME, classes=3, weights=tmp_path / "w.safetensors")
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in first.state_dict().items())


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'timm:resnet19'; did you mean 'resnet1"):
        build("timm:resnet19")
    with pytest.raises(ModelError, match="unknown model 'timm:hf-hub:somebody/something'"):
        build("timm:hf-hub:somebody/something")
    with pytest.raises(ModelError, match="timm has no weights 'none_in1k' of resnet18; it has: .*a1_in1k"):
        build("timm:resnet18.none_in1k")
    with pytest.raises(ModelError, match="timm has no weights 'none_in1k' of resnet18"):
        build("timm:resnet18", weights="timm:none_in1k")
    with pytest.raises(ModelError, match="'timm:test_resnet' with .*widths"):
        build(NAME, widths=3)


def test_weights_of_timm_are_for_its_own_models() -> None:
    with pytest.raises(ModelError, match="'lenet5': weights='timm' needs a model named 'timm:<model>'"):
        build("lenet5", weights="timm")
    with pytest.raises(ModelError, match="weights='torchvision' needs a model named 'torchvision:<model>'"):
        build(NAME, weights="torchvision")


def test_pretrained_weights_are_fetched_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fail(*given: object, **options: object) -> None:
        asked.append(str(given))
        raise OSError("no network here")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fail)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_url", fail)
    build(NAME)
    assert not asked
    with pytest.raises(ModelError, match=r"weights cannot be fetched: no network here; .*weights=FILE.safetensors"):
        build(NAME, weights="timm")
    assert len(asked) == 1


def test_a_missing_timm_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"timm is not installed; pip install 'rbprune\[timm\]'"):
        build(NAME)


def test_timm_is_no_code_of_the_users() -> None:
    assert not is_users_code("timm:resnet18")
    assert is_users_code("timms:resnet18")


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:resnet18.tv_in1k", "timm:mobilenetv1_100.ra4_e3600_r224_in1k"])
def test_images_look_as_timm_makes_them(name: str) -> None:
    """Against timm's own transform."""
    found = timm_images(name)
    size = found.pop("image_size")
    look = ImageLook(tuple(found["mean"]), tuple(found["std"]), found["interpolation"], found["crop"])
    torch.manual_seed(0)
    image = Image.fromarray((torch.rand(190, 301, 3) * 255).byte().numpy())
    data = import_extra("timm.data", extra="timm")
    config = data.resolve_data_config(
        pretrained_cfg=import_extra("timm", extra="timm").get_pretrained_cfg(name.removeprefix("timm:")).to_dict()
    )
    wanted: Tensor = data.create_transform(**config)(image)
    torch.testing.assert_close(transform(size, False, look)(image), wanted, rtol=0, atol=1e-5)


def test_the_offer_that_is_loaded_decides() -> None:
    assert timm_images("timm:resnet18", "timm:tv_in1k")["interpolation"] == "bilinear"
    assert timm_images("timm:resnet18", "timm:tv_in1k") == timm_images("timm:resnet18.tv_in1k")


def test_images_that_folders_cannot_give_are_refused() -> None:
    with pytest.raises(ConfigError, match="wants images of shape .*give a data.name of your own"):
        timm_images(_odd())


def _odd() -> str:
    """Some model of timm's whose images are no squares cropped in the centre."""
    timm = import_extra("timm", extra="timm")
    for name in timm.list_pretrained():
        traits = timm.get_pretrained_cfg(name).to_dict()
        if traits.get("crop_mode", "center") != "center":
            return f"timm:{name}"
    raise AssertionError("timm has none any more")
