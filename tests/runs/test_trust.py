"""Code that a run folder names runs for whoever started the run; for anybody else only on their word."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from rbprune.errors import UntrustedCodeError
from rbprune.runs.finished import open_run
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import resume
from rbprune.runs.series import run_once
from rbprune.runs.trust import named_code
from rbprune.runs.within_error import go_on, launch
from rbprune.settings.recipe import load_recipe
from rbprune.train.runner import Runner
from rbprune.utils.interrupt import Interrupted, Signals
from tests.cli.command import run as command
from tests.runs.quick import BETWEEN_STEPS, QUICK, quiet, stop_after
from tests.runs.test_pair import run_folder

NET = """
from pathlib import Path
from rbprune.models import build
Path(r"{mark}").write_text("it ran")
def net(classes=10):
    return build("lenet5", classes=classes)
"""
DATA = """
from pathlib import Path
from rbprune.data import load
Path(r"{mark}").write_text("it ran")
def data(path):
    return load("mnist-subset", val=10, limit=20)
"""
PLAIN = ("prune.method=l1", "prune.macs_ratio=1.5", "finetune.epochs=1", "finetune.distill=0", "pretrain.epochs=1")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that is there once the code of a test has run."""
    return tmp_path / "mark"


@pytest.fixture
def net(tmp_path: Path, mark: Path) -> str:
    """A model of the user's own."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "net.py").write_text(NET.format(mark=mark))
    return f"{tmp_path}/code/net.py:net"


@pytest.fixture
def started(tmp_path: Path, net: str, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with code of the user's own, which was interrupted."""
    stop_after(3, load_recipe("demo", [*QUICK, *PLAIN, f"model.name={net}"]), tmp_path / "run", monkeypatch)
    mark.unlink()
    return tmp_path / "run"


def forget(stem: str) -> None:
    """Let the next import run the file of this name again."""
    for name in [name for name in sys.modules if name.startswith(f"rbprune_user_{stem}_")]:
        del sys.modules[name]


def refused(folder: Path, mark: Path, message: str) -> None:
    """Resuming the folder runs nothing and says why."""
    with pytest.raises(UntrustedCodeError, match=message):
        resume(folder, console=quiet())
    assert not mark.exists()


def test_only_the_users_own_functions_are_code() -> None:
    names = ["model.name=torchvision:resnet18", "data.name=mnist-subset"]
    assert named_code(load_recipe("demo", names)) == {}
    assert named_code(load_recipe("demo", ["model.name=timm:resnet18"])) == {}
    assert named_code(load_recipe("demo", ["runtime.tracker=a.py:listen"])) == {"runtime.tracker": "a.py:listen"}
    both = named_code(load_recipe("demo", ["model.name=a.py:net", "data.name=a.b:data"]))
    assert both == {"model.name": "a.py:net", "data.name": "a.b:data"}


def test_who_started_a_run_resumes_it_without_a_word(started: Path, net: str, mark: Path) -> None:
    forget("net")
    assert resume(started, console=quiet())["macs_ratio"] > 1
    assert mark.read_text() == "it ran"


def test_a_moved_run_is_still_its_users(started: Path, net: str, tmp_path: Path) -> None:
    shutil.move(started, tmp_path / "moved")
    assert resume(tmp_path / "moved", console=quiet())["macs_ratio"] > 1


def test_a_folder_without_a_seal_needs_a_word(
    started: Path, net: str, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder(started).seal_file.unlink()
    forget("net")
    refused(started, mark, r"names code that would be run.*model.name = .*net.py:net.*which is .*code/net.py.*--trust")
    assert command("resume", str(started)) == 1
    assert f"go on with 'rbprune resume {started} --trust'" in capsys.readouterr().err
    assert command("resume", str(started), "--trust") == 0
    assert "running code that" in capsys.readouterr().err
    assert mark.read_text() == "it ran"
    assert RunFolder(started).seal_file.is_file()


@pytest.mark.parametrize(
    "seal",
    ["", "[]", "{}", '{"seal": 3}', json.dumps({"seal": "0" * 64}), '{"seal": "\\ud800"}', "x" * 5000, "[" * 3000],
)
def test_a_seal_cannot_be_made_up(started: Path, net: str, mark: Path, seal: str) -> None:
    RunFolder(started).seal_file.write_text(seal)
    forget("net")
    refused(started, mark, "nothing shows that you started this run here")


def test_another_users_seal_is_none(
    started: Path, net: str, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget("net")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    refused(started, mark, "nothing shows")


@pytest.mark.parametrize("change", ["other function", "other data", "other path"])
def test_a_seal_is_for_one_function_on_one_path(started: Path, net: str, mark: Path, change: str) -> None:
    config = RunFolder(started).settings_file
    text = config.read_text()
    changed = {
        "other function": text.replace("net.py:net", "net.py:other"),
        "other data": text.replace('name = "mnist-subset"', f'name = "{net}"'),
        "other path": text.replace('name = "mnist-subset"', 'name = "mnist-subset"\npath = "/etc"'),
    }[change]
    assert changed != text
    config.write_text(changed)
    forget("net")
    refused(started, mark, "nothing shows")


def test_code_inside_the_folder_is_never_its_users(started: Path, mark: Path, net: str) -> None:
    """Even with the very text that was sealed: a folder that was replaced brings its own."""
    (started / "net.py").write_text(NET.format(mark=mark))
    config = RunFolder(started).settings_file
    config.write_text(config.read_text().replace(net, f"{started}/net.py:net"))
    refused(started, mark, "nothing shows")


@pytest.mark.filterwarnings("ignore:.*has no list of checksums")
def test_a_module_is_not_looked_up_in_the_run_folder(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path / "downloaded", "brought_along:net")
    (folder / "brought_along.py").write_text(NET.format(mark=mark))
    monkeypatch.chdir(folder)
    with pytest.raises(UntrustedCodeError, match=r"brought_along:net.*which is .*downloaded/brought_along.py"):
        open_run(".")
    assert not mark.exists()
    assert open_run(".", "lenet5").model_name == "lenet5"


@pytest.mark.filterwarnings("ignore:.*has no list of checksums")
def test_timing_a_folder_runs_its_code_only_on_a_word(
    tmp_path: Path, net: str, mark: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)
    folder = run_folder(tmp_path / "downloaded", net)
    words = ("time", "--run", str(folder), "--batch", "1", "--rounds", "1", "--device", "cpu", "--input", "1x28x28")
    assert command(*words) == 1
    assert "nothing was run; read it, and if you trust it, add --trust" in capsys.readouterr().err
    assert not mark.exists()
    assert command(*words, "--trust") == 0
    assert mark.exists()
    assert command("time", net, *words[1:]) == 0  # its user names it


@pytest.mark.filterwarnings("ignore:.*has no list of checksums")
def test_data_that_only_a_folder_names_is_made_on_a_word_alone(
    tmp_path: Path, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "make.py").write_text(DATA.format(mark=mark))
    maker = f"{tmp_path}/make.py:data"
    folder = str(run_folder(tmp_path / "downloaded", "lenet5", f"data.name={maker}"))
    assert command("evaluate", folder) == 1
    assert "data.name = " in (told := capsys.readouterr().err)
    assert "nothing was run; read it, and if you trust it, name it yourself with --set data.name=" in told
    hub = tmp_path / "hub"
    assert command("export", folder, "--format", "safetensors", "--out", str(hub)) == 0
    assert "on random numbers, because the data cannot be loaded" in capsys.readouterr().out
    assert command("evaluate", str(hub)) == 1
    assert not mark.exists()
    for words in ((folder, "--trust"), (str(hub), "--trust"), (folder, "--set", f"data.name={maker}")):
        assert command("evaluate", *words) == 0
        mark.unlink()
        forget("make")


def test_each_run_of_a_series_is_trusted_by_itself(started: Path, net: str, mark: Path) -> None:
    RunFolder(started).seal_file.unlink()
    forget("net")
    with pytest.raises(UntrustedCodeError, match=f"if you trust it, go on with 'rbprune resume {started} --trust'"):
        run_once(started, lambda: load_recipe("demo"), title="", console=quiet(), command=[])
    assert not mark.exists()


def test_a_word_for_a_search_is_one_for_the_runs_that_it_consists_of(
    tmp_path: Path, net: str, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*QUICK, "pretrain.epochs=1", "prune.method=uniform", "prune.max_error_rise=90", f"model.name={net}"]
    plain = getattr(Runner, BETWEEN_STEPS)

    def stop(self: Runner, signals: Signals) -> None:
        signals.received = signal.SIGTERM
        plain(self, signals)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(Runner, BETWEEN_STEPS, stop)
        launch(load_recipe("demo", words), tmp_path / "run", console=quiet())
    (seals := list((tmp_path / "run").rglob("seal.json"))).sort()
    assert len(seals) == 2  # of the search, and of the dense network that it was training
    for seal in seals:
        seal.unlink()
    mark.unlink()
    forget("net")
    with pytest.raises(UntrustedCodeError, match=r"names code that would be run"):
        go_on(tmp_path / "run", console=quiet())
    assert not mark.exists()
    monkeypatch.setattr("rbprune.runs.within_error.search_within", lambda steps, *_: steps.dense())
    monkeypatch.setattr("rbprune.runs.within_error.FolderSteps.finish", lambda self, found: found.to_dict())
    assert go_on(tmp_path / "run", console=quiet(), trust=True)["path"]
    assert all(seal.is_file() for seal in seals)


def test_without_a_home_there_is_no_seal_and_the_run_goes_on(
    tmp_path: Path, net: str, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    stop_after(3, load_recipe("demo", [*QUICK, *PLAIN, f"model.name={net}"]), tmp_path / "run", monkeypatch)
    assert not RunFolder(tmp_path / "run").seal_file.exists()


def test_a_downloaded_recipe_cannot_call_python_itself(tmp_path: Path, mark: Path) -> None:
    recipe = tmp_path / "downloaded.toml"
    recipe.write_text(
        'model = { name = "lenet5" }\npretrain = { lr = 0.1, epochs = 1 }\n'
        f'[data]\nname = "os:system"\npath = "touch {mark}"\n'
    )
    assert command("prune", str(recipe), "--out", str(tmp_path / "out")) == 1
    assert not mark.exists()


@pytest.mark.parametrize("name", ["events.jsonl", "tb", "checkpoints"])
def test_a_folder_cannot_lead_what_is_written_elsewhere(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended to a start-up file of a shell, a line of the log would be run by it."""
    folder = tmp_path / "run"
    stop_after(3, load_recipe("demo", [*QUICK, *PLAIN]), folder, monkeypatch)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedCodeError, match=rf"run/{name} is a link to .*elsewhere.*nothing was written"):
        resume(folder, console=quiet())
    assert resume(folder, console=quiet(), trust=True)["macs_ratio"] > 1


def test_the_tracker_of_a_strangers_run_is_not_made(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = "class T:\n    def log(self, event): pass\n    def close(self): pass\ndef make(): return T()\n"
    (tmp_path / "listen.py").write_text(f"from pathlib import Path\nPath(r'{mark}').write_text('it ran')\n{listener}")
    settings = load_recipe("demo", [*QUICK, *PLAIN, f"runtime.tracker={tmp_path}/listen.py:make"])
    stop_after(3, settings, tmp_path / "run", monkeypatch)
    mark.unlink()
    RunFolder(tmp_path / "run").seal_file.unlink()
    refused(tmp_path / "run", mark, "names code that would be run.*runtime.tracker = .*listen.py:make")
    assert resume(tmp_path / "run", console=quiet(), trust=True)["macs_ratio"] > 1
    assert open_run(tmp_path / "run").summary is not None  # reads the network alone
