"""The machine under a run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.errors import ConfigError
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine, _processes


@pytest.mark.parametrize("number", [0, 7, 2**63 + 5])
def test_a_step_draws_the_numbers_that_its_seed_gives(number: int) -> None:
    engine = Engine(RuntimeSettings(accelerator="cpu"))
    torch.manual_seed(number)
    wanted = torch.rand(3), torch.randn(3), torch.randperm(5)
    engine.seed(number)
    drawn = torch.rand(3), torch.randn(3), torch.randperm(5)
    assert all(torch.equal(a, b) for a, b in zip(wanted, drawn, strict=True))


def test_threads_are_those_of_the_settings_and_given_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), Engine(RuntimeSettings(threads=3)).threads():
        assert torch.get_num_threads() == 3
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
    with Engine(RuntimeSettings()).threads():
        assert torch.get_num_threads() == before


def test_alone_an_engine_is_the_whole_world() -> None:
    engine = Engine(RuntimeSettings(accelerator="cpu"))
    assert (engine.rank, engine.world, engine.main) == (0, 1, True)
    assert engine.any(True) and not engine.any(False)
    assert engine.of_main(3) == 3
    engine.wait()


def test_an_accelerator_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.accelerator='nonsense' cannot be used: "):
        Engine(RuntimeSettings(accelerator="nonsense"))


def test_batches_of_any_structure_are_put_where_the_model_is() -> None:
    engine = Engine(RuntimeSettings(accelerator="cpu", channels_last=True))
    images, scale = torch.randn(4, 3, 5, 5), torch.tensor(2.0)
    batch = engine.put({"images": images, "more": [scale, "text"]})
    assert torch.equal(batch["images"], images)
    assert batch["images"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(batch["more"][0], scale) and batch["more"][1] == "text"


def test_every_process_gets_its_own_part_of_a_batch_and_all_get_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(RuntimeSettings(accelerator="cpu"))
    rows, scalar = torch.arange(7), torch.tensor(5)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(Engine, "rank", rank)
        monkeypatch.setattr(Engine, "world", 3)
        part, same = engine.put((rows, scalar), share=True)
        assert int(same) == 5, "what has no rows cannot be divided"
        assert torch.equal(engine.put(rows), rows), "evaluation sees all"
        parts.append(part)
    assert torch.equal(torch.cat(parts).sort().values, rows)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("environment", "devices", "wanted"),
    [({}, 1, (1, 1)), ({}, 4, (4, 1)), ({"LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "3"}, 1, (2, 3))],
)
def test_torchrun_decides_how_many_processes_there_are(
    environment: dict[str, str], devices: int, wanted: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _processes(RuntimeSettings(devices=devices)) == wanted


def test_models_are_placed_in_the_memory_layout_of_the_run() -> None:
    model = nn.Conv2d(3, 4, 3)
    Engine(RuntimeSettings(accelerator="cpu", channels_last=True)).place(model)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
