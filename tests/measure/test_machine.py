"""The machine that a time was measured on."""

from __future__ import annotations

import pytest
import torch

from rbprune.errors import ConfigError
from rbprune.measure.machine import Machine, cpu_name, find_device, machine, synchroniser


def test_auto_takes_an_accelerator_before_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("auto").type == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find_device("auto").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("auto").type == "cuda"
    assert find_device("cpu").type == "cpu"


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="'cuda' is not available to torch here; use auto or one of: cpu"):
        find_device("cuda")
    with pytest.raises(ConfigError, match="unknown device 'gpu'; known are auto, cpu, cuda, mps"):
        find_device("gpu")


def test_it_can_be_cited() -> None:
    here = machine(torch.device("cpu"))
    assert here == Machine("cpu", cpu_name(), torch.get_num_threads(), torch.__version__)
    assert here.name
    assert str(Machine("cpu", "Some Processor", 2, "2.6.0")) == "cpu (Some Processor), 2 threads, torch 2.6.0"
    assert str(Machine("cpu", "Some Processor", 1, "2.6.0")) == "cpu (Some Processor), 1 thread, torch 2.6.0"


def test_the_cpu_needs_no_waiting_and_others_have_a_call_that_waits() -> None:
    assert synchroniser(torch.device("cpu"))() is None
    assert synchroniser(torch.device("cuda")) is torch.cuda.synchronize
    assert synchroniser(torch.device("mps")) is torch.mps.synchronize
