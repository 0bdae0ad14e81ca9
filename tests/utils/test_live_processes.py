"""Which processes live."""

from __future__ import annotations

import os
import subprocess
import sys

from rbprune.utils.live_processes import ProcessId, is_of_dead_process, mark


def test_this_process_lives_and_an_ended_one_does_not() -> None:
    own = ProcessId.own()
    assert own.is_here and not own.is_dead and own.pid == os.getpid()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    other = ProcessId(own.host, child.pid)
    assert not other.is_dead
    child.communicate(b"\n")
    assert other.is_dead


def test_another_process_with_the_same_number_is_another_one() -> None:
    own = ProcessId.own()
    assert own.began is not None
    assert ProcessId(own.host, own.pid, own.began + 1).is_dead


def test_of_another_machine_nothing_is_known() -> None:
    elsewhere = ProcessId("elsewhere", 999999999)
    assert not elsewhere.is_here and not elsewhere.is_dead


def test_numbers_that_no_process_has_are_dead() -> None:
    assert ProcessId(ProcessId.own().host, 2**80).is_dead
    assert is_of_dead_process(mark().rpartition("-")[0] + "-999999999")
    assert not is_of_dead_process("x")
