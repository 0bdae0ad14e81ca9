"""What several processes agree on: alone, and with a second process that is played."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rbprune.errors import ProcessesError
from rbprune.utils import processes


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the second of two; the first has the value 10 wherever it is asked."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    monkeypatch.setattr(dist, "all_reduce", lambda value: value.add_(10))

    def broadcast(value: Tensor, source: int) -> None:
        assert source == 0 and value.is_contiguous()
        value.fill_(10)

    monkeypatch.setattr(dist, "broadcast", broadcast)


def test_alone_a_process_is_the_main_one_and_its_own_mean() -> None:
    value = torch.tensor([2.0, 3.0])
    assert (processes.world(), processes.is_main()) == (1, True)
    assert processes.mean(value) is value and processes.total(value) is value
    assert processes.gathered("mine") == ["mine"]
    norm = nn.BatchNorm1d(2)
    processes.share_buffers(norm)
    assert norm.running_var is not None and norm.running_var.tolist() == [1, 1]


def test_where_torch_has_no_processes_at_all_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_available", lambda: False)
    assert (processes.world(), processes.is_main()) == (1, True)


@pytest.mark.usefixtures("pair")
def test_the_mean_is_over_all_and_only_the_first_is_the_main_one() -> None:
    assert (processes.world(), processes.is_main()) == (2, False)
    value = torch.tensor([2.0, 4.0])
    assert processes.mean(value).tolist() == [6.0, 7.0]
    assert processes.total(value).tolist() == [12.0, 14.0]
    assert value.tolist() == [2.0, 4.0], "what was given stays as it is"


@pytest.mark.usefixtures("pair")
def test_buffers_become_those_of_the_first_and_parameters_stay() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.register_buffer("transposed", torch.zeros(2, 3).T)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    buffers = list(model.buffers())
    processes.share_buffers(model)
    assert all(a is b for a, b in zip(buffers, model.buffers(), strict=True)), "in place"
    assert all(bool((buffer == 10).all()) for buffer in model.buffers())
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


def test_torchrun_says_whether_it_started_the_processes_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert not processes.is_restarted() and processes.group_name() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's default, which all share
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert processes.is_restarted() and processes.group_name() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    assert processes.group_name() == "job-7"


@pytest.mark.usefixtures("pair")
def test_the_loss_of_another_process_is_an_error_of_ours_and_other_errors_stay() -> None:
    gone = RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer")
    told = "lost each other: .*closed by peer; one of them has ended"
    with pytest.raises(ProcessesError, match=told), processes.lost_processes_named():
        raise gone
    with pytest.raises(ProcessesError, match="lost each other"), processes.lost_processes_named():
        raise dist.DistBackendError("timeout")
    with pytest.raises(RuntimeError, match="^shape$"), processes.lost_processes_named():
        raise RuntimeError("shape")
