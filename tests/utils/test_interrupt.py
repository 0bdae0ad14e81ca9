"""Signals become a flag, once."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from rbprune.errors import RbpruneError
from rbprune.utils.interrupt import Interrupted, Signals


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
