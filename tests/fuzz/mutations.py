"""Damaged and hostile variants of a file: random ones, and such as an attacker or a failing disk makes."""

from __future__ import annotations

import random
import re

NUMBERS = (b"\x00", b"\xff", b"\x7f", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff" * 8)
TOKENS = (
    *(b"-1", b"0", b"1e400", b"nan", b"null", b"true", b'""', b"[]", b"{}", b"18446744073709551616", b"9" * 400),
    *(b"0x" + b"f" * 5000, b"1e9", b"1099511627776", b'"a\\u0000b"', b"[" * 2000, b"1979-05-27", b"'\xff\xfe'", b"0.5"),
    *(b'"' + b"x" * 3000 + b'"', b"\r\n", b"=", b"'''", b"[[a]]", b'"~nobody/x"', b'{"a": {"a": 1}}', b"\xed\xa0\x80"),
)
"""What stands where a text has a value."""
_VALUE = re.compile(rb"-?\d+(?:\.\d+)?|\"[^\"\n]*\"|true|false|null|\[[^\[\]\n]*\]")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four changes of some bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice((_flip, _overwrite, _truncate, _delete, _insert, _repeat, _swap, _zero, _value, _value))(
            data, rng
        )
    return data


def _place(data: bytes, rng: random.Random) -> int:
    """Half of the time near the beginning, where headers are."""
    return rng.randrange(min(len(data), 64) if rng.random() < 0.5 else len(data)) if data else 0


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    at, with_ = _place(data, rng), rng.choice((*NUMBERS, rng.randbytes(rng.randrange(1, 9))))
    return data[:at] + with_ + data[at + len(with_) :]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: _place(data, rng)]


def _delete(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 16, 512)) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice((*NUMBERS, *TOKENS)) + data[at:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at : at + rng.choice((1, 16, 512))] * rng.choice((2, 3, 50)) + data[at:]


def _swap(data: bytes, rng: random.Random) -> bytes:
    one, other = sorted((_place(data, rng), _place(data, rng)))
    size = rng.choice((4, 32, 512))
    return (
        data[:one]
        + data[other : other + size]
        + data[one + size : other]
        + data[one : one + size]
        + data[other + size :]
    )


def _zero(data: bytes, rng: random.Random) -> bytes:
    at, size = _place(data, rng), rng.choice((4, 64, 512, 4096))
    return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]


def _value(data: bytes, rng: random.Random) -> bytes:
    """Another value where a text has one; other files are changed at random."""
    found = list(_VALUE.finditer(data[:20_000]))
    if not found:
        return _overwrite(data, rng)
    hit = rng.choice(found)
    return data[: hit.start()] + rng.choice(TOKENS) + data[hit.end() :]
