"""docs/yolo.md: its Python blocks run, on small images and for one epoch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.yolo_networks import QUIET, draw_shapes, make_yolo

PAGE = Path(__file__).parents[2] / "docs" / "yolo.md"
SMALLER = {
    "imgsz=640, batch=16)": "imgsz=64, batch=8, options=['prune.epochs=10'])",
    "epochs=50, imgsz=640)": "epochs=1, imgsz=64, plots=False, amp=False)",
    'export(format="onnx")': 'export(format="onnx", imgsz=64, simplify=False)',
}
"""What the test changes in the page, to be quick and to stay off the network."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = draw_shapes(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.yaml").write_text(Path(data).read_text())
    yolo = make_yolo()
    yolo.train(data="data.yaml", epochs=1, project=str(tmp_path), name="dense", **QUIET)
    yolo.save("best.pt")
    from ultralytics.utils import YAML

    described = {name: value for name, value in yolo.model.yaml.items() if name != "yaml_file"}
    YAML.save(tmp_path / "network.yaml", {**described, "nc": 2})
    names: dict[str, Any] = {}
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    text = "".join(found)
    for written, small in SMALLER.items():
        assert written in text, written
        text = text.replace(written, small)
    exec(compile(text, str(PAGE), "exec"), names)
    assert (tmp_path / "pruned.onnx").is_file()
    assert names["fresh"].model.state_dict().keys() == names["yolo"].model.state_dict().keys()
