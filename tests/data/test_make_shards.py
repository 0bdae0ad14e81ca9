"""Folders made into shards."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rbprune.cli import main
from rbprune.data import load
from rbprune.data.image import MOST_BYTES
from rbprune.data.make_shards import ShardRequest, list_source_images, make_shards
from rbprune.errors import ConfigError, DataError
from tests.data.shard_files import jpeg

SMALL = ShardRequest(images_per_shard=5)


def make(source: Path, out: Path, request: ShardRequest = SMALL, workers: int = 1) -> dict[str, Any]:
    return make_shards(source, out, request, workers=workers, console=Console(file=io.StringIO()))


def contents(folder: Path) -> dict[str, bytes]:
    """All but the indices, which know when the tars were written."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".npz"}


def members(folder: Path, part: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob(f"{part}-*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                file = tar.extractfile(info)
                assert file is not None
                found[info.name] = file.read()
    return found


def test_shards_hold_the_bytes_of_every_file_and_its_label(image_folder: Path, tmp_path: Path) -> None:
    summary = make(image_folder, tmp_path / "out")
    wanted = {}
    for label, name in enumerate(("ant", "bee", "cat")):
        for file in (image_folder / "train" / name).iterdir():
            wanted[f"{name}/{file.stem}{file.suffix.lower()}"] = file.read_bytes()
            wanted[f"{name}/{file.stem}.cls"] = str(label).encode()
    assert members(tmp_path / "out", "train") == wanted
    assert json.loads((tmp_path / "out/classes.json").read_text()) == ["ant", "bee", "cat"]
    assert (summary["train"]["shards"], summary["train"]["images"], summary["val"]["shards"]) == (3, 12, 2)
    assert summary["skipped"] == [] and (tmp_path / "out/skipped.txt").read_text() == ""
    names = [name for name in members(tmp_path / "out", "train") if name.endswith("g")]
    assert names != sorted(names), "shuffled"


def test_the_bytes_depend_on_files_and_seed_alone(image_folder: Path, tmp_path: Path) -> None:
    make(image_folder, tmp_path / "a")
    for file in image_folder.rglob("*.jpg"):
        os.utime(file, (1, 1))
    make(image_folder, tmp_path / "b", workers=2)
    make(image_folder, tmp_path / "c", ShardRequest(5, seed=1))
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert a["train-000000.tar"] != c["train-000000.tar"]
    with tarfile.open(tmp_path / "a" / "train-000000.tar") as tar:
        assert {(i.mtime, i.uid, i.gid, i.uname, i.gname, i.mode) for i in tar} == {(0, 0, 0, "", "", 0o644)}


def test_its_lists_and_index_are_those_a_reader_makes(image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(image_folder, out)
    listing = json.loads((out / "val.json").read_text())
    assert listing["__kind__"] == "wids-shard-index-v1"
    assert [(s["url"], s["nsamples"]) for s in listing["shardlist"]] == [("val-000000.tar", 5), ("val-000001.tar", 1)]
    assert [s["filesize"] for s in listing["shardlist"]] == [p.stat().st_size for p in sorted(out.glob("val-*.tar"))]
    index = (out / "train.index.npz").read_bytes()
    (out / "train.index.npz").unlink()
    assert len(load("shards", out).train) == 12
    assert (out / "train.index.npz").read_bytes() == index


@pytest.mark.parametrize("again", [False, True])
def test_corrupt_images_are_left_out_and_listed(image_folder: Path, tmp_path: Path, again: bool) -> None:
    (image_folder / "train/bee/1.JPEG").write_bytes(jpeg()[:700])
    (image_folder / "train/cat/2.JPEG").write_bytes(b"")
    (image_folder / "val/cat/1.JPEG").write_text("<html>not found</html>")
    out = tmp_path / "out"
    summary = make(image_folder, out)
    if again:
        (out / "skipped.txt").unlink()
        (out / "train-000001.tar").unlink()
        summary = make(image_folder, out)
    lines = [line.split("\t") for line in (out / "skipped.txt").read_text().splitlines()]
    assert [name for name, _ in lines] == ["train/bee/1.JPEG", "train/cat/2.JPEG", "val/cat/1.JPEG"]
    assert "truncated" in lines[0][1]
    formats = "it has no known image format (JPEG, PNG, BMP, GIF, WEBP, TIFF), but begins with b'<html>no'"
    assert [why for _, why in lines[1:]] == ["it is empty", formats]
    assert summary["skipped"] == [{"file": name, "why": why} for name, why in lines]
    assert (summary["train"]["skipped"], summary["val"]["skipped"], summary["train"]["images"]) == (2, 1, 10)
    assert "bee/1.jpeg" not in members(out, "train")
    assert len(load("shards", out).train) == 10


def test_a_corrupt_file_whose_name_is_not_utf8_is_left_out_like_any_other(image_folder: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xe9t\xe9.jpg")
    (image_folder / "train/bee" / name).write_bytes(b"no image")
    summary = make(image_folder, tmp_path / "out")
    assert b"\xe9t\xe9.jpg" in (tmp_path / "out/skipped.txt").read_bytes()
    assert len(load("shards", tmp_path / "out").train) == 12
    assert summary["skipped"][0]["file"] == "train/bee/\ufffdt\ufffd.jpg", "what can be printed"


def test_without_the_check_everything_is_packed(image_folder: Path, tmp_path: Path) -> None:
    (image_folder / "train/bee/1.JPEG").write_bytes(b"no image")
    summary = make(image_folder, tmp_path / "out", ShardRequest(5, check=False))
    assert summary["train"]["images"] == 12
    assert members(tmp_path / "out", "train")["bee/1.jpeg"] == b"no image"


def test_an_interrupted_call_goes_on_with_what_is_missing(image_folder: Path, tmp_path: Path) -> None:
    make(image_folder, tmp_path / "whole")
    out = tmp_path / "out"
    make(image_folder, out)
    for name in ("train.json", "val.json", "train.index.npz", "skipped.txt", "train-000001.tar"):
        (out / name).unlink()
    (out / ".train-000001.tar.123.tmp").write_bytes(b"half")
    kept = (out / "train-000000.tar").stat().st_mtime_ns
    with pytest.raises(DataError, match="is not complete; call the same 'rbprune shard"):
        load("shards", out)
    make(image_folder, out)
    assert contents(out) == contents(tmp_path / "whole")
    assert (out / "train-000000.tar").stat().st_mtime_ns == kept


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_it_and_leaves_no_half_shard(image_folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    image = jpeg(0, (500, 500))
    for i in range(200):
        (image_folder / f"train/ant/many{i}.jpg").write_bytes(image)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "rbprune", "shard", str(image_folder), "--out", str(out)]
    command += ["--images-per-shard", "10"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while not list(out.glob("train-*.tar")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + number, output
    assert "interrupted; call the same command again to go on" in output
    assert "Traceback" not in output
    assert not list(out.glob(".*")) and not (out / "train.json").exists()
    assert 0 < len(list(out.glob("train-*.tar"))) < 22
    assert make(image_folder, out, ShardRequest(10))["train"]["images"] == 212
    make(image_folder, tmp_path / "whole", ShardRequest(10))
    assert contents(out) == contents(tmp_path / "whole")


def test_another_folder_or_request_is_refused(image_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists and holds something else; choose another --out"):
        make(image_folder, image_folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="exists and holds something else"):
        make(image_folder, tmp_path / "file")
    make(image_folder, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"holds shards with another seed \(0, now 1\)"):
        make(image_folder, tmp_path / "out", ShardRequest(5, seed=1))
    (image_folder / "train/ant/more.jpg").write_bytes(jpeg())
    with pytest.raises(ConfigError, match=r"another files \(18, now 19\)"):
        make(image_folder, tmp_path / "out")
    for request, workers, name in ((ShardRequest(0), 1, "images-per-shard"), (SMALL, 0, "workers")):
        with pytest.raises(ConfigError, match=f"--{name} must be at least 1, got 0"):
            make(image_folder, tmp_path / "new", request, workers)
    assert not (tmp_path / "new").exists()


def test_keys_have_no_dot_and_stay_apart(image_folder: Path) -> None:
    for name in ("a.b.jpg", "a_b.jpg", "a_b.png", "a_b-2.jpg"):
        (image_folder / "train/ant" / name).write_bytes(jpeg())
    keys = [p.key for p in list_source_images(image_folder / "train", ["ant"]) if "a_b" in p.key]
    assert len(set(keys)) == 4
    assert all(key.startswith("ant/a_b") and "." not in key for key in keys)


def test_odd_names_survive(image_folder: Path, tmp_path: Path) -> None:
    for name in ("é ü.jpg", "x" * 200 + ".jpg", os.fsdecode(b"\xff\xfe.jpg"), "v1.2.jpg"):
        (image_folder / "train/ant" / name).write_bytes(jpeg(7))
    assert make(image_folder, tmp_path / "out")["train"]["images"] == 16
    data = load("shards", tmp_path / "out", image_size=28)
    assert sum(len(y) for _, y in data.train.batches(torch.arange(16), 4, seed=0, augment=False)) == 16


def test_a_file_that_cannot_be_read_is_an_error(image_folder: Path, tmp_path: Path) -> None:
    (image_folder / "train/ant/link.jpg").symlink_to("nowhere.jpg")
    with pytest.raises(DataError, match=r"train/ant/link.jpg: cannot be read: No such file or directory; .*remove it"):
        make(image_folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()  # it is refused when the images are listed
    (image_folder / "train/ant/link.jpg").unlink()
    with (image_folder / "train/ant/long.jpg").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError, match=r"long.jpg: has 1,073,741,825 bytes, where at most .* make sense"):
        make(image_folder, tmp_path / "out")
    assert not [p for p in (tmp_path / "out").iterdir() if p.suffix == ".tmp"]


def test_names_with_line_breaks_do_not_break_the_list(image_folder: Path, tmp_path: Path) -> None:
    (image_folder / "train/bee" / "a\tb\nc.jpg").write_bytes(b"no image")
    summary = make(image_folder, tmp_path / "out")
    (line,) = (tmp_path / "out/skipped.txt").read_text().splitlines()
    assert line.split("\t")[0] == summary["skipped"][0]["file"] == "train/bee/a\\tb\\nc.jpg"


def test_the_command_says_what_it_did(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (image_folder / "val/cat/1.JPEG").write_bytes(b"")
    with pytest.raises(SystemExit) as stop:
        main(["shard", str(image_folder), "--out", str(tmp_path / "out"), "--images-per-shard", "5"])
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "train: 12 images in 3 shards" in text
    assert "left out: 1 corrupt images" in text and "val/cat/1.JPEG: it is empty" in text
    assert f"--set data.name=shards --set data.path={tmp_path / 'out'}" in text
