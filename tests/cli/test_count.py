"""``rbprune count``."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.command import Refused, run


def test_count_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("count", "vgg16-cifar", "--keep", "50-63-123-108-104-57-23-14-9-8-6-7-11-11-12", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert round(result["macs_ratio"], 2) == 3.50
    assert round(result["params_ratio"], 1) == 38.9
    assert len(result["layers"]) == 16


def test_count_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("count", "lenet5", "--keep", "5-10-76") == 0
    assert "accumulating" in capsys.readouterr().out


def test_count_shows_the_stages_of_a_residual_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("count", "resnet20-cifar", "--keep", "16-8-8") == 0
    assert re.search(r"layer1\s+.\s+32/48\s+.\s+66\.7", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("count", "lenet"), "did you mean 'lenet5'"),
        (("count", "lenet5", "--keep", "99"), "asks for 99 channels of 'conv1'"),
        (("count", "lenet5", "--input", "big"), "a shape such as 3x224x224; this is 'big'"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
