"""Messages to a device: read, or refused by name."""

from __future__ import annotations

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.downlink.down_message import Command, Settings, check_life, decode
from edgewake.protocol.downlink.downlink import (
    ARG_CHARS_MAX,
    ARGS_MAX,
    EXPIRES_S_MAX,
    MESSAGE_BYTES_MAX,
    OUTPUT_CHARS_MAX,
    DownKind,
)
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import COUNTER_MAX


def test_a_command_and_settings_are_read_and_keys_of_a_later_version_are_left_out() -> None:
    assert decode("command", b'{"id":"a-1","name":"restart","args":["x"],"new":1}') == Command(
        id="a-1", name="restart", args=("x",)
    )
    assert decode("settings", b'{"id":"b","version":7,"text":"a=1"}') == Settings(
        id="b", version=7, text="a=1"
    )


@pytest.mark.parametrize(
    ("kind", "payload", "reason", "says"),
    [
        ("reboot", b"{}", RejectReason.TOPIC, "expected command or settings"),
        ("command", b"x" * (MESSAGE_BYTES_MAX + 1), RejectReason.OVERSIZE, "expected at most"),
        ("command", b"{", RejectReason.JSON, "command"),
        ("command", b'{"id":"\xff"}', RejectReason.JSON, "command"),
        ("command", b"[" * 60_000, RejectReason.JSON, "command"),
        ("command", b"[]", RejectReason.SHAPE, "command"),
        ("command", b"{}", RejectReason.SHAPE, "id"),
        ("command", b'{"id":"","name":"a"}', RejectReason.SHAPE, "id"),
        ("command", b'{"id":"a/../b","name":"a"}', RejectReason.SHAPE, "id"),
        ("command", b'{"id":"a\\n","name":"a"}', RejectReason.SHAPE, "id"),
        ("command", b'{"id":5,"name":"a"}', RejectReason.SHAPE, "id"),
        ("command", b'{"id":"a","name":"rm -rf"}', RejectReason.SHAPE, "name"),
        ("command", b'{"id":"a","name":"a","args":"x"}', RejectReason.SHAPE, "args"),
        ("command", b'{"id":"a","name":"a","args":[1]}', RejectReason.SHAPE, "args.0"),
        ("command", b'{"id":"a","name":"a","args":["\\u0000"]}', RejectReason.SHAPE, "NUL"),
        ("command", orjson.dumps({"id": "a", "name": "a", "args": ["x"] * (ARGS_MAX + 1)}),
            RejectReason.SHAPE, "args"),
        ("command", orjson.dumps({"id": "a", "name": "a", "args": ["x" * (ARG_CHARS_MAX + 1)]}),
            RejectReason.SHAPE, "args.0"),
        ("settings", b'{"id":"a","version":0,"text":""}', RejectReason.SHAPE, "version"),
        ("settings", b'{"id":"a","version":true,"text":""}', RejectReason.SHAPE, "version"),
        ("settings", orjson.dumps({"id": "a", "version": COUNTER_MAX + 1, "text": ""}),
            RejectReason.SHAPE, "version"),
        ("settings", b'{"id":"a","version":1}', RejectReason.SHAPE, "text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(
    kind: str, payload: bytes, reason: RejectReason, says: str
) -> None:
    with pytest.raises(Rejected) as refused:
        decode(kind, payload)
    assert (refused.value.reason, says in refused.value.detail) == (reason, True), refused.value
    assert len(refused.value.detail) <= OUTPUT_CHARS_MAX


@given(
    st.sampled_from([*DownKind, "x"]),
    st.binary(max_size=200) | st.from_regex(r'\{"id":.{0,60}\}').map(str.encode),
)
def test_hostile_bytes_raise_nothing_else(kind: str, payload: bytes) -> None:
    with contextlib.suppress(Rejected):
        decode(kind, payload)


@pytest.mark.parametrize("expires_s", [None, -1, EXPIRES_S_MAX + 1])
def test_a_message_without_an_end_is_refused(expires_s: int | None) -> None:
    with pytest.raises(Rejected, match="expiry"):
        check_life(expires_s)
    assert check_life(EXPIRES_S_MAX) == EXPIRES_S_MAX
