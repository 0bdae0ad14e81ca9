"""From settings to data, network and runner; nothing is written on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rbprune
from rbprune.errors import ConfigError, ModelError
from rbprune.logging.events import read_events
from rbprune.runs.build import (
    EVALUATION_BATCH,
    build_model,
    load_data,
    make_run_data,
    make_runner,
    named_trackers,
    with_images_of_model,
)
from rbprune.runs.folder import RunFolder
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import QUICK, SMALL, quiet, summary_of


def test_data_are_divided_as_the_settings_say() -> None:
    data = load_data(load_recipe("demo", SMALL))
    assert (len(data.train), data.val and len(data.val)) == (160, 100)
    streams = make_run_data(data, seed=3)
    assert streams.val is not None and streams.test is not None
    sizes = [len(labels) for _, labels in streams.test.epoch(0)]
    assert sum(sizes) == len(data.test) and max(sizes) <= EVALUATION_BATCH
    first, again, other = (list(make_run_data(data, seed).train(16).epoch(0)) for seed in (3, 3, 4))
    assert len(first) == 10
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for (a, _), (b, _) in zip(first, other, strict=True))


def test_the_network_depends_on_the_seed_alone() -> None:
    given = "model.input_shape=[1, 28, 28]"
    models = [build_model(load_recipe("demo", [given, f"seed={seed}"])) for seed in (1, 1, 2)]
    weights = [model.get_parameter("conv1.weight") for model, _ in models]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert models[0][1].shape == (2, 1, 28, 28)


def test_the_runner_knows_what_only_the_data_could_tell_and_writes_nothing(tmp_path: Path) -> None:
    runner = make_runner(load_recipe("demo", QUICK), RunFolder(tmp_path / "run"), quiet(), [])
    assert (runner.settings.model.classes, runner.settings.model.input_shape) == (10, [1, 28, 28])
    assert not (tmp_path / "run").exists()


def test_without_weights_and_training_there_is_nothing_to_prune(tmp_path: Path) -> None:
    config = load_recipe("demo", QUICK).model_copy(update={"pretrain": None})
    with pytest.raises(ConfigError, match=r"set model.weights=FILE or give a \[pretrain\] section"):
        make_runner(config, RunFolder(tmp_path), quiet(), [])


def test_a_pruned_network_is_built_from_its_plan_and_a_run_goes_on_from_it(whole: Path, tmp_path: Path) -> None:
    """Its plan then leads from the network as the zoo builds it, not from the one that this run began with."""
    cut = [f"model.weights={whole / 'model.safetensors'}", f"model.plan={whole / 'plan.json'}"]
    more = ["prune.method=uniform", "prune.macs_ratio=1.5", "finetune.epochs=1"]
    settings = load_recipe("demo", [*QUICK, *cut, *more])
    summary = start(settings, tmp_path / "run", console=quiet())
    assert summary["macs_before"] == summary_of(whole)["macs_after"]
    assert summary["error_before"] == summary_of(whole)["error_after"], "it is the same network"
    assert summary["val_error_before"] == summary_of(whole)["val_error_after"]
    pruned = rbprune.load(tmp_path / "run", rbprune.models.build("lenet5"))
    assert rbprune.trace(pruned, torch.zeros(1, 1, 28, 28)).macs() == summary["macs_after"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.plan=plan.json"], "model.plan = 'plan.json' .* model.weights must name its weights"),
        (["model.plan=no.json", "model.weights=a.safetensors"], "model.plan: there is no file '/.*no.json'"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(load_recipe("demo", [*settings, "model.input_shape=[1, 28, 28]"]))


def test_a_plan_of_something_else_is_refused_by_its_name(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(b"\xff\xfe no plan")
    words = [f"model.plan={plan}", "model.weights=a.safetensors", "model.input_shape=[1,28,28]"]
    with pytest.raises(ModelError, match=r"model.plan = '.*plan.json': this is not a pruning plan"):
        build_model(load_recipe("demo", words))


def test_the_latency_is_measured_at_the_end_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)
    short = ("pretrain.epochs=0.2", "prune.epochs=0", "finetune.epochs=0", "prune.method=uniform", "prune.macs_ratio=2")
    summary = start(load_recipe("demo", [*QUICK, *short, "runtime.time=true"]), tmp_path / "timed", console=quiet())
    timed = summary["measured_latency"]
    assert (timed["batch"], timed["dense_ms"] > 0, timed["pruned_ms"] > 0) == (1, True, True)
    assert "Latency, batch 1" in (tmp_path / "timed" / "report.html").read_text()
    summary = start(load_recipe("demo", [*QUICK, *short]), tmp_path / "plain", console=quiet())
    assert "measured_latency" not in summary
    assert "Latency" not in (tmp_path / "plain" / "report.html").read_text()


def test_a_model_of_timm_has_its_images_unless_the_settings_say_otherwise() -> None:
    given = ["model.name=timm:resnet18", "data.name=folder", "data.path=DIR"]
    found = with_images_of_model(load_recipe("demo", given)).data
    assert (found.image_size, found.interpolation, found.crop, found.mean) == (
        224,
        "bicubic",
        0.95,
        [0.485, 0.456, 0.406],
    )
    found = with_images_of_model(
        load_recipe("demo", [*given, "data.image_size=64", "data.interpolation=bilinear"])
    ).data
    assert (found.image_size, found.interpolation, found.crop, found.path) == (64, "bilinear", 0.95, "DIR")
    other = load_recipe("demo", ["model.name=timm:resnet18"])
    assert with_images_of_model(other) is other


def test_a_run_of_timm_from_a_folder(tmp_path: Path) -> None:
    from PIL import Image

    torch.manual_seed(0)
    for part, count in (("train", 8), ("val", 4)):
        for label, name in enumerate(("dark", "light")):
            (tmp_path / "data" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = (torch.rand(40, 52, 3) * 100 + 150 * label).byte().numpy()
                Image.fromarray(pixels).save(tmp_path / "data" / part / name / f"{number}.png")
    given = ["model.name=timm:test_resnet", "data.name=folder", f"data.path={tmp_path}/data", "data.image_size=32"]
    given += ["data.val=4", "data.limit=12", "pretrain.epochs=1", "prune.method=uniform", "prune.macs_ratio=1.5"]
    given += ["finetune.epochs=1", "finetune.distill=0", "runtime.time=false", "runtime.recalibrate=1"]
    given += [f"{phase}.batch_size=4" for phase in ("pretrain", "prune", "finetune")]
    summary = start(load_recipe("demo", given), tmp_path / "run", console=quiet())
    assert summary["macs_ratio"] > 1.4
    again = RunFolder(tmp_path / "run").read_settings()  # a run that goes on reads its images alike
    assert (again.data.image_size, again.data.interpolation, again.data.mean) == (32, "bilinear", [0.5, 0.5, 0.5])
    assert with_images_of_model(again) == again


TRACKER = """
class Tracker:
    def __init__(self, folder):
        self.file = open(folder / "heard.txt", "w")
    def log(self, event):
        print(event["event"], file=self.file)
        if event["event"] == "epoch" and FAILS:
            raise OSError("no room")
    def close(self):
        print("closed", file=self.file)
        self.file.close()
def make(folder):
    return Tracker(folder)
"""


@pytest.mark.parametrize("fails", [False, True])
def test_the_tracker_of_a_recipe_hears_the_run(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "own.py").write_text(TRACKER.replace("FAILS", str(fails)))
    plain = ["prune.method=l1", "prune.macs_ratio=1.5", "finetune.epochs=2", "finetune.distill=0", "pretrain.epochs=1"]
    settings = load_recipe("demo", [*QUICK, *plain, f"runtime.tracker={tmp_path}/own.py:make"])
    (tmp_path / "run").mkdir()
    start(settings, tmp_path / "run", console=quiet())
    events = [event["event"] for event in read_events(RunFolder(tmp_path / "run").events_file)]
    heard = (tmp_path / "run" / "heard.txt").read_text().split()
    if not fails:
        assert heard == [*events, "closed"]
        assert "warning" not in events
    else:
        assert heard == [*events[: events.index("epoch") + 1], "closed"]
        assert events.count("warning") == 1
        assert events[-1] == "done"


def test_a_tracker_is_made_before_anything_is_trained(tmp_path: Path) -> None:
    settings = load_recipe("demo", [*QUICK, "runtime.tracker=nowhere.py:make"])
    with pytest.raises(ConfigError, match="nowhere.py"):
        make_runner(settings, RunFolder(tmp_path / "run"), quiet(), [])
    assert named_trackers(load_recipe("demo", QUICK), None) == []
