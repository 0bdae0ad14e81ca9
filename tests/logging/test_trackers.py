from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rbprune.errors import ConfigError
from rbprune.logging.trackers import TrackerGroup, check_tracker, make_tracker


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.closed = 0

    def log(self, event: Mapping[str, Any]) -> None:
        self.events.append(dict(event))

    def close(self) -> None:
        self.closed += 1


class Failing(Listener):
    """Loses its connection at the second event."""

    def log(self, event: Mapping[str, Any]) -> None:
        super().log(event)
        if len(self.events) == 2:
            raise ConnectionError("the server is gone\nand more")


def test_all_hear_every_event_and_only_our_own_are_closed() -> None:
    own, lent = Listener(), Listener()
    group = TrackerGroup([own], [lent], pytest.fail)
    group.log({"event": "start"})
    group.close()
    group.close()
    group.log({"event": "late"})
    assert own.events == lent.events == [{"event": "start"}]
    assert (own.closed, lent.closed) == (1, 0)


def test_one_that_fails_is_told_of_once_and_left_out() -> None:
    failing, other, warnings = Failing(), Listener(), []
    group = TrackerGroup([failing, other], [], warnings.append)
    for number in range(4):
        group.log({"event": "epoch", "number": number})
    group.close()
    assert warnings == [
        "the tracker Failing failed in log: ConnectionError: the server is gone; the run goes on without it"
    ]
    assert len(failing.events) == 2
    assert len(other.events) == 4
    assert (failing.closed, other.closed) == (1, 1)


def test_a_tracker_cannot_change_what_the_run_remembers() -> None:
    class Rude(Listener):
        def log(self, event: Mapping[str, Any]) -> None:
            event["sites"].clear()

    event = {"event": "stage", "sites": ["a"]}
    TrackerGroup([Rude()], [], pytest.fail).log(event)
    assert event["sites"] == ["a"]


def test_a_factory_gets_what_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "class Own:\n"
        "    def __init__(self, given): self.given = given\n"
        "    def log(self, event): pass\n"
        "    def close(self): pass\n"
        "def plain(): return Own(None)\n"
        "def both(settings, folder): return Own((settings['seed'], folder))\n"
        "def wrong(): return print\n"
    )
    made: Any = make_tracker(f"{tmp_path}/own.py:both", {"seed": 3}, tmp_path)
    assert made.given == (3, tmp_path)
    made = make_tracker(f"{tmp_path}/own.py:plain", {"seed": 3}, None)
    assert made.given is None
    with pytest.raises(ConfigError, match="wrong' returned <built-in function print>, which is no tracker"):
        make_tracker(f"{tmp_path}/own.py:wrong", {}, None)
    with pytest.raises(ConfigError, match="has no function 'bothh'"):
        make_tracker(f"{tmp_path}/own.py:bothh", {}, None)


def test_a_class_is_no_tracker() -> None:
    with pytest.raises(ConfigError, match="trackers has <class .*Listener'>, which is no tracker"):
        check_tracker(Listener, "trackers has")
