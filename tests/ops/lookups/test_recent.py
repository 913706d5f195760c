"""The place of an answer comes back from a client: whatever it sends is a place, or refused."""

from __future__ import annotations

import base64
import zlib

import pytest

from edgewake.cloud.ops.lookups.recent import PLACE_BYTES_MAX, decode, encode

PLACES = {"ew.s.a": {0: 5, 11: 2**40}, "ew.q.b.1": {}}


def packed(text: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text)).decode()


def test_a_place_is_what_it_was() -> None:
    assert decode(encode(PLACES)) == PLACES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "é",
        "AAAA",
        packed(b"7"),
        packed(b'{"t": 7}'),
        packed(b'{"t": {"x": 1}}'),
        packed(b'{"t": {"1": null}}'),
        packed(b'{"t": {"1": 1e400}}'),
        packed(b" " * (PLACE_BYTES_MAX + 1) + b"{}"),
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the place of an earlier answer"):
        decode(text)
