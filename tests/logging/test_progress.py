from __future__ import annotations

import io

from rich.console import Console

from rbprune.logging.progress import Progress, TimeLeft


def run(progress: Progress) -> None:
    with progress:
        progress.stages(2)
        for index in range(2):
            progress.stage(index, f"features.{index} [x]")
            progress.epoch(3, "epoch 1/1")
            for _ in range(3):
                progress.step(0.5)
            progress.step(None)
            progress.log(f"[stage] {index} done")


def test_silent_when_not_a_terminal_but_for_the_log() -> None:
    file = io.StringIO()
    run(Progress(Console(file=file)))
    assert file.getvalue() == "[stage] 0 done\n[stage] 1 done\n"


def test_long_lines_are_not_wrapped() -> None:
    file = io.StringIO()
    Progress(Console(file=file, width=20)).log("x" * 50)
    assert file.getvalue() == "x" * 50 + "\n"


def test_drawn_on_a_terminal() -> None:
    file = io.StringIO()
    run(Progress(Console(file=file, force_terminal=True, width=100)))
    assert "features.1 [x]" in file.getvalue() and "loss 0.5000" in file.getvalue()


def test_can_be_switched_off_on_a_terminal() -> None:
    file = io.StringIO()
    run(Progress(Console(file=file, force_terminal=True), enabled=False))
    assert "features" not in file.getvalue()


def test_calls_outside_the_context_do_nothing() -> None:
    progress = Progress(Console(file=io.StringIO()), enabled=True)
    progress.stages(2)
    progress.stage(0, "a")
    progress.epoch(3, "b")
    progress.step(1.0)


def test_the_time_left_is_the_mean_pace_and_counts_down() -> None:
    now = 0.0
    left = TimeLeft(10, clock=lambda: now)
    assert left.remaining() is None
    left.update(4)  # a resumed run: four were done before
    assert left.remaining() is None
    now = 20.0
    left.update(6)
    assert left.remaining() == 40.0
    now = 25.0
    assert left.remaining() == 35.0
    now = 500.0
    assert left.remaining() == 0.0
