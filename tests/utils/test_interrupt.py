"""Signals become a flag, once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from rbprune.errors import RbpruneError
from rbprune.utils import interrupt
from rbprune.utils.interrupt import Interrupted, Signals, SignalsStop, StopNow, StoppedWaiting, awaited, number_of


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_acts_as_usual(number: signal.Signals) -> None:
    heard = []
    before = signal.signal(number, lambda *_: heard.append("usual"))
    try:
        with Signals() as signals:
            assert signals.received is None
            os.kill(os.getpid(), number)
            assert (signals.received, heard) == (number, [])
            os.kill(os.getpid(), number)
            assert heard == ["usual"]
        os.kill(os.getpid(), number)
        assert heard == ["usual", "usual"]
    finally:
        signal.signal(number, before)


def test_handlers_are_given_back_after_an_error() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(ZeroDivisionError), Signals():
        assert signal.getsignal(signal.SIGINT) is not before[signal.SIGINT]
        raise ZeroDivisionError
    assert {number: signal.getsignal(number) for number in before} == before


def test_in_another_thread_it_does_nothing_because_python_forbids_it() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Signals() as signals:
            seen.append((signals.received, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, before)]


def test_the_exit_code_is_that_of_a_shell() -> None:
    stop = Interrupted(signal.SIGTERM, "interrupted")
    assert isinstance(stop, RbpruneError)
    assert (stop.exit_code, str(stop)) == (143, "interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_nobody_notes_a_signal_it_ends_what_goes_on(number: signal.Signals) -> None:
    """By an exception that a careless ``except Exception`` does not swallow."""
    with pytest.raises(StopNow) as stop, SignalsStop():
        try:
            os.kill(os.getpid(), number)
        except Exception:
            pytest.fail("swallowed")
    assert number_of(stop.value) == number
    assert number_of(KeyboardInterrupt()) == signal.SIGINT


def test_a_forked_worker_ends_without_a_word() -> None:
    with SignalsStop():
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143


def hanging(seconds: float) -> Iterator[int]:
    yield 0
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    time.sleep(seconds)
    yield 1


def test_a_loader_that_hangs_does_not_hold_up_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "PATIENCE", 0.3)
    began, seen = time.monotonic(), []
    with pytest.raises(StoppedWaiting) as stop, Signals() as signals:
        for batch in awaited(hanging(60)):
            seen.append(batch)
    assert (signals.received, stop.value.number, seen) == (signal.SIGTERM, signal.SIGTERM, [0])
    assert 0.3 < time.monotonic() - began < 10


def test_a_slow_loader_and_a_long_step_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a wait for data is cut short: a step, however long, is ended, and then looked after."""
    monkeypatch.setattr(interrupt, "PATIENCE", 0.5)
    with Signals() as signals:
        assert list(awaited(hanging(0.2))) == [0, 1]
        time.sleep(1.0)
        assert signals.received == signal.SIGTERM
    assert interrupt._waiting_since == []
