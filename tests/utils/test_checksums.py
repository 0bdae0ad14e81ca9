"""A list of checksums that guards itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbprune.utils.checksums import read_sums, sha256, sha256_file, sums_text


def test_a_file_has_the_sum_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_file(tmp_path / "a") == sha256(b"abc")
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "FIPS 180-2"


def test_every_single_bit_of_the_list_is_guarded() -> None:
    content = sums_text({"model.safetensors": sha256(b"a"), "tb/x y": sha256(b"b")}).encode()
    assert read_sums(content) == {"model.safetensors": sha256(b"a"), "tb/x y": sha256(b"b")}
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="first line"):
            read_sums(bytes(changed))


@pytest.mark.parametrize("length", [0, 1, 50, -1])
def test_a_list_that_was_cut_short_is_none(length: int) -> None:
    with pytest.raises(ValueError, match="first line"):
        read_sums(sums_text({"a": sha256(b"a")}).encode()[:length])
