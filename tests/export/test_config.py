"""What an exported folder says of itself is read as a stranger's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rbprune.errors import ConfigError
from rbprune.export.config import read_config

GOOD = {"library_name": "rbprune", "model": "lenet5", "license": None, "classes": 10, "added_later": [1]}


def written(folder: Path, content: Any) -> Path:
    file = folder / "config.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_what_is_null_or_added_is_let_be(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, GOOD))
    assert (config.model, config.license, config.classes, config.data, config.files) == ("lenet5", None, 10, {}, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "is no JSON"),
        (" " * (1 << 20) + "{}", "has 1,048,578 bytes, where at most 1,048,576 make sense"),
        ([1], "holds no table .* but a list"),
        ({"model": "lenet5"}, "was not written by rbprune"),
        ({**GOOD, "model": ""}, "model = ''"),
        ({**GOOD, "model": 3}, "model = 3"),
        ({**GOOD, "classes": -1}, "classes = -1"),
        ({**GOOD, "classes": 2**40}, "classes = 1099511627776"),
        ({**GOOD, "input_shape": 28}, "input_shape = 28"),
        ({**GOOD, "input_shape": [1, 0, 28]}, r"input_shape\.1 = 0"),
        ({**GOOD, "data": ["mnist"]}, r"data = \['mnist'\]"),
        ({**GOOD, "summary": "good"}, "summary = 'good'"),
    ],
)
def test_anything_else_is_refused_by_its_field(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(written(tmp_path, content))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ConfigError, match="is a pipe"):
        read_config(tmp_path / "config.json")
