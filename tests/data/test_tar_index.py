"""One shard: what is read, and what is refused with the reason and the place."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rbprune.data.tar_index import index_tar, member_names
from rbprune.errors import DataError
from tests.data.shard_files import jpeg, pairs, write_tar


def link(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("b.jpg")
    info.type, info.linkname = kind, "a.jpg"
    return info


def test_offsets_point_at_the_bytes_of_every_image(tmp_path: Path) -> None:
    long = "x" * 150  # needs a header of its own
    members = [("b.cls", b"7\n"), ("a.jpg", jpeg(1)), ("a.cls", b"0"), ("b.PNG", b"png"), (f"{long}.jpeg", b"long")]
    path = write_tar(tmp_path / "x.tar", [*members, (f"{long}.cls", b" 12 ")])
    index = index_tar(path)
    raw = path.read_bytes()
    found = [raw[o : o + n] for o, n in zip(index.offsets, index.sizes, strict=True)]
    assert found == [jpeg(1), b"png", b"long"]
    assert index.labels.tolist() == [0, 7, 12]
    assert [member_names(path)[int(o)] for o in index.offsets] == ["a.jpg", "b.PNG", f"{long}.jpeg"]


def test_dots_in_directories_belong_to_the_key_and_other_fields_are_passed_over(tmp_path: Path) -> None:
    extra = [("a.json", b"{}"), ("README", b"x"), ("._c.jpg", b"mac"), (".hidden", b"x")]
    folder = tarfile.TarInfo("v1.0")
    folder.type = tarfile.DIRTYPE
    path = write_tar(tmp_path / "x.tar", pairs(["v1.0/a", "./v1.1.x/a", "a"], 3) + extra, [folder])
    assert index_tar(path).labels.tolist() == [3, 3, 3]


def test_a_tar_without_members_is_whole(tmp_path: Path) -> None:
    assert len(index_tar(write_tar(tmp_path / "x.tar", [])).labels) == 0


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([*pairs("ab"), ("c.jpg", b"x")], "key 'c' has no .cls (1 such of 3); each example is KEY.jpg and KEY.cls"),
        ([*pairs("ab"), ("c.cls", b"1")], "key 'c' has no image (1 such of 3); each example"),
        ([("a.jpg", b"x"), ("a.cls", b"cat")], "a.cls holds 'cat', which is not a class number; write the class as"),
        ([("a.jpg", b"x"), ("a.cls", b"1.0")], "a.cls holds '1.0', which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", b"")], "a.cls holds '', which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", b"-3")], "a.cls holds '-3', which is negative; write the class as an integer"),
        ([("a.jpg", b"x"), ("a.cls", b"9" * 10)], "a.cls holds '9999999999', which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", "٣".encode())], "which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", b" " * 99 + b"1")], "a.cls holds '', which is not a class number"),
        (pairs("aba"), "a.jpg is a second image for key 'a'; give every example a key of its own"),
        ([("a.jpg", b"x"), ("a.png", b"x")], "a.png is a second image for key 'a'"),
        ([*pairs("a"), ("a.cls", b"0")], "a.cls is a second label for key 'a'"),
        (pairs(["d.1/a.7"]), "d.1/a.7.jpg is field '7.jpg' of key 'd.1/a'; a key ends at the first dot"),
    ],
)
def test_what_is_no_pair_is_named(members: list[tuple[str, bytes]], message: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        index_tar(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tarfile.SYMTYPE, "b.jpg is a symbolic link to 'a.jpg'; shards hold plain files"),
        (tarfile.LNKTYPE, "b.jpg is a hard link to 'a.jpg'; shards hold plain files"),
        (tarfile.FIFOTYPE, "b.jpg is of tar type '6'; shards hold plain files"),
    ],
)
def test_links_and_pipes_are_refused(kind: bytes, message: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("a"), [link(kind)])
    with pytest.raises(DataError, match=re.escape(message)):
        index_tar(path)


def test_cut_anywhere_it_is_refused(tmp_path: Path) -> None:
    members = pairs("ab", 1)
    whole = write_tar(tmp_path / "x.tar", members).read_bytes()
    end = sum(512 + -(-len(data) // 512) * 512 for _, data in members)
    path = tmp_path / "cut.tar"
    for length in [*range(1, end, 211), *range(512, end + 1, 512), end + 100]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="not a whole tar: after byte .*; copy it or write it anew"):
            index_tar(path)
    path.write_bytes(whole[: end + 512])  # one empty block is an end that tar accepts
    assert len(index_tar(path).labels) == 2


def test_damaged_in_the_middle_it_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("abc"))
    raw = bytearray(path.read_bytes())
    at = raw.index(b"b.cls")
    raw[at : at + 300] = b"?" * 300
    path.write_bytes(raw)
    with pytest.raises(DataError, match=rf"after byte {at}: what follows is no header of a member"):
        index_tar(path)


@pytest.mark.parametrize("content", [b"", b"no tar at all", jpeg()])
def test_what_is_no_tar_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(DataError, match="x.tar: not a whole tar"):
        index_tar(tmp_path / "x.tar")


def test_an_image_of_another_field_is_passed_over(tmp_path: Path) -> None:
    members = [*pairs("ab"), ("a.seg.png", b"x"), ("b.0.cls", b"x")]
    assert len(index_tar(write_tar(tmp_path / "x.tar", members)).labels) == 2


@pytest.mark.parametrize(
    ("program", "compress"), [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)]
)
def test_compressed_and_missing_tars_are_explained(
    tmp_path: Path, program: str, compress: Callable[[bytes], bytes]
) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("a"))
    path.write_bytes(compress(path.read_bytes()))
    with pytest.raises(DataError, match=f"x.tar: is compressed by {program}; .*decompress it first"):
        index_tar(path)
    with pytest.raises(DataError, match="none.tar: cannot be opened: No such file"):
        index_tar(tmp_path / "none.tar")


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.jpg")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4096"}
    data = b"1\n0\n8\n".ljust(512, b"\0") + b"contents".ljust(512, b"\0")
    info.size = len(data)
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))
    with pytest.raises(DataError, match=r"a.jpg is a sparse file; shards hold plain files"):
        index_tar(tmp_path / "x.tar")
