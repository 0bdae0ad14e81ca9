"""Several methods under one budget: the table, what is repeated and what is not, and rows that fail."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from rbprune.cli.app import app
from rbprune.errors import ConfigError, FailedRunsError
from rbprune.runs.compare import Comparison, ComparisonRequest, compare
from rbprune.runs.folder import RunFolder
from rbprune.train import precision
from rbprune.utils.interrupt import Interrupted
from tests.runs.quick import SMALL

QUICK = (
    *SMALL,
    "pretrain.epochs=2",
    "prune.epochs=1",
    "prune.rate_lr=0.06",
    "prune.price.nats_per_example=0.3",
    "finetune.epochs=1",
)


SIDE_BY_SIDE = """
import sys
from pathlib import Path
from rich.console import Console
from rbprune.runs.compare import ComparisonRequest, compare
from rbprune.utils.interrupt import Interrupted

if __name__ == "__main__":
    request = ComparisonRequest("demo", ("ibp", "uniform", "slimming"), tuple(sys.argv[2:]), budget=3.0)
    try:
        compare(request, Path(sys.argv[1]), console=Console(quiet=True), jobs=2)
    except Interrupted as stop:
        sys.exit(stop.exit_code)
"""


def run(folder: Path, *methods: str, more: tuple[str, ...] = (), **options: object) -> Comparison:
    request = ComparisonRequest("demo", methods, (*QUICK, *more), **options)  # type: ignore[arg-type]
    return compare(request, folder, console=Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "out"
    run(out, "ibp", "uniform", "slimming", budget=3.0)
    return out


def test_all_start_from_one_network_and_spend_one_budget(folder: Path) -> None:
    found = json.loads((folder / "compare.json").read_text())
    ibp, uniform, slimming = found["rows"]
    assert ibp["cost"] == pytest.approx([3.0], abs=0.15)
    assert uniform["cost"] == pytest.approx([3.0], abs=0.15)
    assert uniform["macs_ratio"][0] == pytest.approx(ibp["macs_ratio"][0], rel=0.1)
    assert uniform["macs_ratio"][0] >= ibp["macs_ratio"][0]
    assert "slimming ranks by batch normalisation" in slimming["failed"]
    assert slimming["error"] == []
    before = [json.loads((folder / "seed0" / name / "summary.json").read_text()) for name in ("ibp", "uniform")]
    assert before[0]["error_before"] == before[1]["error_before"] == found["base_error"][0]
    assert before[0]["dense_epochs"]["pretrain"] == before[1]["dense_epochs"]["pretrain"] == 0


def test_nothing_finished_is_repeated_and_methods_and_seeds_can_be_added(folder: Path) -> None:
    names = ("dense", "ibp", "uniform")
    times = [(folder / "seed0" / name / "summary.json").stat().st_mtime_ns for name in names]
    found = run(folder, "ibp", "uniform", "random", budget=3.0)
    assert [row.method for row in found.rows] == ["ibp", "uniform", "random"]
    assert times == [(folder / "seed0" / name / "summary.json").stat().st_mtime_ns for name in names]
    again = run(folder, "ibp", budget=3.0, seeds=2)
    assert len(again.rows[0].error) == 2
    assert (folder / "seed1" / "dense" / "summary.json").is_file()


def test_an_interrupted_method_goes_on_from_its_folder(folder: Path) -> None:
    run_folder = folder / "seed0" / "uniform"
    for name in ("summary.json", "SHA256SUMS", "model.safetensors"):
        (run_folder / name).unlink()
    found = run(folder, "ibp", "uniform", budget=3.0)
    assert (run_folder / "model.safetensors").is_file()
    assert found.rows[1].failed is None


def test_another_comparison_in_the_same_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds a comparison with another budget \(3\.0, now 4\.0\)"):
        run(folder, "ibp", budget=4.0)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no comparison"):
        run(tmp_path, "ibp")


def test_a_folder_from_before_there_was_a_choice_of_the_cost_met_at_the_same_macs(folder: Path) -> None:
    path = folder / "request.json"
    request = json.loads(path.read_text())
    assert request.pop("cost") == "macs"
    path.write_text(json.dumps(request))
    with pytest.raises(ConfigError, match=r"holds a comparison with another cost \('macs', now 'params'\)"):
        run(folder, "ibp", budget=3.0, cost="params")
    assert run(folder, "ibp", budget=3.0).rows[0].failed is None


def test_requests_that_cannot_work_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'uniform' must be told how much to cut: name a method first"):
        run(tmp_path / "a", "uniform", "rbp")
    with pytest.raises(ConfigError, match="unknown method 'unifrom'; did you mean 'uniform'"):
        run(tmp_path / "a", "rbp", "unifrom")
    with pytest.raises(ConfigError, match="different methods"):
        run(tmp_path / "a", "rbp", "rbp")
    with pytest.raises(ConfigError, match="unknown cost 'flops'; known are macs, params"):
        run(tmp_path / "a", "rbp", cost="flops")
    with pytest.raises(ConfigError, match=r"or give --sweep 1\.5,2,3 or --set prune\.params_ratio=2"):
        run(tmp_path / "a", "uniform", "rbp", cost="params")
    request = ComparisonRequest("demo", ("rbp", "uniform"), (*QUICK, "prune.params_ratio=2"))
    with pytest.raises(ConfigError, match=r"the same MACs.*prune\.params_ratio = 2: give --cost params, or --set"):
        request.check()
    ComparisonRequest("demo", ("rbp", "ibp"), (*QUICK, "prune.params_ratio=2")).check()
    assert not (tmp_path / "a").exists()


def test_a_sweep_runs_each_ratio(tmp_path: Path) -> None:
    found = run(tmp_path / "out", "uniform", budget=1.0, sweep=(1.5, 3.0))
    assert [row.label for row in found.rows] == ["uniform 1.5x", "uniform 3x"]
    assert [row.ratios["macs"][0] for row in found.rows] == pytest.approx([1.5, 3.0], rel=0.1)


def test_methods_meet_at_the_first_ones_parameters_when_these_are_the_cost(tmp_path: Path) -> None:
    found = run(tmp_path / "out", "ibp", "uniform", budget=2.0, cost="params")
    ibp, uniform = (row.ratios for row in found.rows)
    assert uniform["params"][0] == pytest.approx(ibp["params"][0], rel=0.1)
    assert uniform["params"][0] >= ibp["params"][0]
    settings = RunFolder(tmp_path / "out" / "seed0" / "uniform").read_settings().prune
    assert (settings.macs_ratio, settings.params_ratio) == (None, ibp["params"][0])
    rows = json.loads((tmp_path / "out" / "compare.json").read_text())["rows"]
    assert [row["params_ratio"] for row in rows] == [ibp["params"], uniform["params"]]
    assert [row["macs_ratio"] for row in rows] == [ibp["macs"], uniform["macs"]]


def test_all_methods_compute_in_what_the_first_one_found_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another measurement would come to something else."""
    monkeypatch.setattr(precision, "SMALL_STEP", 0)
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    times = iter([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    monkeypatch.setattr(precision, "time_steps", lambda *given, **options: next(times))
    run(tmp_path / "out", "uniform", "l1", budget=0.2, sweep=(2.0,))
    places = [tmp_path / "out" / "seed0" / name for name in ("uniform-2x", "l1-2x")]
    assert [RunFolder(place).read_settings().runtime.channels_last for place in places] == [True, True]


def test_a_sweep_is_of_the_cost(tmp_path: Path) -> None:
    (row,) = run(tmp_path / "out", "uniform", budget=1.0, sweep=(3.0,), cost="params").rows
    assert row.label == "uniform 3x"
    assert row.ratios["params"][0] == pytest.approx(3.0, rel=0.1)


def test_without_a_budget_all_spend_what_the_first_one_spent_and_nobody_runs_if_it_failed(tmp_path: Path) -> None:
    # with one epoch of fine-tuning the checks of ibp's cut, on ten batches, would take more than all that was spent
    found = run(tmp_path / "swept", "uniform", "random", "ibp", sweep=(1.5, 3.0), more=("finetune.epochs=4",))
    costs = {row.label: row.cost[0] for row in found.rows}
    assert costs["random 1.5x"] == pytest.approx(costs["uniform 1.5x"], rel=0.05)
    assert costs["random 3x"] == pytest.approx(costs["uniform 3x"], rel=0.05)
    assert costs["ibp"] == pytest.approx(costs["uniform 1.5x"], rel=0.1)
    failed = run(tmp_path / "failed", "dds-blocks", "uniform", "sbp").rows
    assert "dds-blocks finds no residual block" in str(failed[0].failed)
    assert failed[1].failed == "seed 0: 'dds-blocks' failed, so 'uniform' cannot be cut to its MACs"
    assert failed[2].failed == "seed 0: 'dds-blocks' failed, so nobody knows what 'sbp' may spend; give --budget"


def test_the_command_prints_the_table_and_writes_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "demo", "--methods", "ibp,uniform,slimming", "--budget", "3.0", "--out", str(folder)]
    with pytest.raises(FailedRunsError, match="1 of 3 methods failed; their notes say why"):
        app([*words, *(word for item in QUICK for word in ("--set", item))], result_action="return_value")
    shown = capsys.readouterr().out
    assert re.search(r"uniform +\d+-\d+-\d+ +[\d.]+ +[\d.]+ +[\d.]+", shown)
    assert "slimming: seed 0: slimming ranks by batch normalisation" in shown
    page = (folder / "compare.html").read_text()
    assert page.count("<circle") == 2 * 4, "two methods of one seed, in two plots, for wide and narrow pages"
    assert "failed, see the notes" in page
    assert "<script" not in page
    table = (folder / "compare.md").read_text()
    assert table.splitlines()[2].startswith(
        "| method | channels left, first seed | MACs | parameters | error % | cost |"
    )


def test_a_mistake_of_ours_costs_one_row_and_leaves_its_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, site: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("rbprune.methods.ranking.Random.score", broken)
    found = run(tmp_path / "out", "ibp", "random", "uniform", budget=2.0)
    assert found.rows[1].failed is not None
    assert found.rows[1].failed.startswith("seed 0: ZeroDivisionError: oh (see ")
    assert "in broken" in (tmp_path / "out" / "seed0" / "random-failed.txt").read_text()
    assert found.rows[2].failed is None


def test_asked_to_stop_it_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: object, **options: object) -> None:
        raise Interrupted(2, "interrupted")

    monkeypatch.setattr("rbprune.runs.series.start", stopped)
    with pytest.raises(Interrupted):
        run(tmp_path / "out", "ibp", "uniform")


def test_side_by_side_comes_to_the_same_table_and_is_taken_up_again(tmp_path: Path) -> None:
    """Three methods of which one fails, at most two at once; stopped in the middle first."""
    request = ComparisonRequest("demo", ("ibp", "uniform", "slimming"), QUICK, budget=3.0)
    folder = tmp_path / "alone"
    compare(request, folder, console=Console(file=io.StringIO()))
    script = tmp_path / "side.py"
    script.write_text(SIDE_BY_SIDE)
    out = tmp_path / "out"
    words = [sys.executable, str(script), str(out), *QUICK]
    process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while not (out / "seed0" / "ibp" / "config.toml").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait(90) == 143
    assert not (out / "compare.json").exists()
    compare(request, out, console=Console(file=io.StringIO()), jobs=2)
    one, two = (json.loads((each / "compare.json").read_text()) for each in (folder, out))
    names = ("ibp", "uniform", "slimming")
    for row, alone in zip(two["rows"], one["rows"], strict=True):
        for field in ("seeds", "channels", "macs_ratio", "error", "val_error", "cost", "failed"):
            assert row[field] == alone[field], (row["method"], field)
    for name in names[:2]:
        weights = [(each / "seed0" / name / "model.safetensors").read_bytes() for each in (folder, out)]
        assert weights[0] == weights[1]
    assert two["base_error"] == one["base_error"] and [row["method"] for row in two["rows"]] == [*names]
