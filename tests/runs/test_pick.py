"""The smallest network of a frontier that keeps the validation error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbprune.errors import ConfigError, DamagedError
from rbprune.runs.pick import copy_choice, pick

ERRORS = (10.0, 9.0, 14.0, 10.5, 20.0)
"""Validation errors of the dense network and of four smaller ones, of which the third is better than the second."""


def write(folder: Path, errors: tuple[float | None, ...] = ERRORS, metric: str = "error") -> Path:
    """A frontier as it lies in its folder: networks of 100, 80, 60, ... MACs on 200 validation examples."""
    folder.mkdir()
    points = []
    for number, error in enumerate(errors):
        name = f"step-{number:02d}" if number else ""
        macs = 100.0 - 20 * number
        points.append(
            {
                "path": name,
                "costs": {"macs": macs, "params": 1000.0},
                "ratios": {"macs": 100 / macs, "params": 1.0},
                "metric": metric,
                "val_error": error,
                "error": error,
                "dense_epochs": float(number),
                "standard_error": None,
            }
        )
        if number and error is not None:
            (folder / name).mkdir()
            sides = {
                side: {"examples": 200, "wrong": list(range(int(2 * value))), "order": 1}
                for side, value in (("before", errors[0]), ("after", error))
                if value is not None
            }
            (folder / name / "mistakes.json").write_text(json.dumps(sides))
            (folder / name / "model.safetensors").write_bytes(b"weights")
            (folder / name / "checkpoints").mkdir()
    (folder / "frontier.json").write_text(json.dumps({"cost": "macs", "points": points, "stopped": None}))
    return folder


@pytest.mark.parametrize(("most", "name"), [(0.0, "step-01"), (0.4, "step-01"), (0.5, "step-03"), (30.0, "step-04")])
def test_the_smallest_network_within_the_limit_is_picked(most: float, name: str, tmp_path: Path) -> None:
    """Also behind one that is not within it."""
    choice = pick(write(tmp_path / "f"), most)
    assert choice.folder.name == name
    assert choice.rise == pytest.approx(choice.point.val_error - 10)  # type: ignore[operator]
    assert choice.doubt is not None and choice.doubt.paired
    assert choice.doubt.points == pytest.approx(choice.rise)


def test_where_no_smaller_one_keeps_it_the_dense_network_is_the_answer(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", (10.0, 12.0, 14.0))
    choice = pick(folder, 1.0)
    assert choice.is_dense and choice.rise == 0
    with pytest.raises(ConfigError, match="no smaller network is near enough.*allow a larger --max-error-rise"):
        copy_choice(choice, tmp_path / "out")


def test_a_copy_has_all_but_checkpoints_and_replaces_nothing(tmp_path: Path) -> None:
    choice = pick(write(tmp_path / "f"), 0.5)
    copy_choice(choice, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mistakes.json", "model.safetensors"]
    with pytest.raises(ConfigError, match="out exists and is not empty; choose another --out"):
        copy_choice(choice, tmp_path / "out")


def test_what_cannot_be_picked_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--max-error-rise is a number of points, 0 or more; -1 is not"):
        pick(tmp_path, -1)
    with pytest.raises(
        ConfigError, match="--max-error-rise compares validation errors, and there are no validation data"
    ):
        pick(write(tmp_path / "a", (None, None)), 1)
    with pytest.raises(ConfigError, match="in points of the classification error"):
        pick(write(tmp_path / "b", (0.25, 0.5), metric="loss"), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": []}, "does not say what each of its networks costs"),
        ({"cost": "joules"}, "costs in 'joules'"),
        ({"points": 3}, "points: Input should be a valid list"),
        ({"points": [{"path": ".."}]}, r"points\.0\.costs: Field required"),
        ({"path": "../../elsewhere"}, r"names '\.\./\.\./elsewhere', which is no folder in"),
        ({"val_error": "low"}, r"points\.2\.val_error"),
    ],
)
def test_a_frontier_from_elsewhere_is_read_as_a_strangers(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "f") / "frontier.json"
    found = json.loads(file.read_text())
    (found if change.keys() & found.keys() else found["points"][2]).update(change)
    file.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match=message):
        pick(tmp_path / "f", 1.0)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"after": 3}', '{"after": {"examples": 3, "wrong": [7], "order": 1}}', "[" * 10**5]
)
def test_mistakes_that_cannot_be_read_are_told(content: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "f")
    (folder / "step-02" / "mistakes.json").write_text(content)
    with pytest.raises(DamagedError, match="mistakes.json cannot be read: it is damaged"):
        pick(folder, 1.0)
