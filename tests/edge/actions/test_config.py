"""What is wrong with an action is said when it is read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from edgewake.edge.config import AgentConfig
from tests.edge.actions.helpers import config

COMMAND: dict[str, Any] = {"type": "command", "command": ["/bin/true"]}
HOOK: dict[str, Any] = {"type": "webhook"}
MESSAGE: dict[str, Any] = {"type": "mqtt"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (COMMAND | {"command": ["reboot"]}, "whole path"),
        (COMMAND | {"command": "/bin/true now"}, "tuple"),
        (COMMAND | {"command": []}, "at least 1 item"),
        (COMMAND | {"command": ["/bin/true", "a\0b"]}, "no NUL"),
        (COMMAND | {"name": "../x"}, "1-64 of"),
        (COMMAND | {"when": "n >"}, "character 4"),
        (COMMAND | {"shell": True}, "Unexpected keyword"),
        (HOOK | {"url": "file:///etc/passwd"}, "http:// or https://"),
        (HOOK | {"url": "http://user:secret@host/"}, "no user name"),
        (HOOK | {"url": "http:///path"}, "a host"),
        (HOOK | {"url": "http://host/a b"}, "without spaces"),
        (HOOK | {"url": "http://host/\r\nX: y"}, "without spaces"),
        (HOOK | {"url": "http://host:99999/"}, "Port out of range"),
        (MESSAGE | {"topic": "a/#"}, "without # and +"),
        (MESSAGE | {"topic": "$SYS/x"}, "no $ first"),
        (MESSAGE | {"topic": ""}, "1-256 characters"),
    ],
)
def test_errors_say_what_was_expected(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        config(**keys)


def absence(**keys: Any) -> dict[str, Any]:
    return {"name": "quiet", "stream": "speed", "into": "alerts", "after_s": 10} | keys


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"action": [COMMAND | {"name": "a", "stream": "unknown"}]},
            "'unknown' is not a stream of",
        ),
        ({"action": [COMMAND | {"name": "a", "stream": "loose"}]}, "'loose' is not a stream of"),
        (
            {"action": [COMMAND | {"name": "a", "stream": "speed"}] * 2},
            "action: two of the same name",
        ),
        ({"absence": [absence(), absence()]}, "absence: two of the same name"),
        ({"absence": [absence(stream="loose")]}, "'loose' is not a stream of"),
        ({"absence": [absence(into="speed")]}, "already made by another"),
        ({"absence": [absence(), absence(name="b", lane="bulk")]}, "or in another way"),
        ({"absence": [absence(), absence(name="b", send=False)]}, "or in another way"),
    ],
)
def test_what_is_watched_is_logged_and_has_one_maker(keys: dict[str, Any], said: str) -> None:
    sources = [
        {"type": "json_lines", "stream": "speed"},
        {"type": "host_metrics", "stream": "loose", "mode": "one_way"},
    ]
    with pytest.raises(ValueError, match=re.escape(said)):
        AgentConfig.checked({"device": "d", "data_dir": "d", "source": sources} | keys)


SPOKEN = {"type": "json_lines", "stream": "speed"}
KEPT = SPOKEN | {"send": False}
SUMMED = {"stream": "speed", "fields": ["x"]}


@pytest.mark.parametrize(
    ("source", "keys", "said"),
    [
        (SPOKEN, {"sketch": [SUMMED]}, "would count twice"),
        (KEPT, {"sketch": [SUMMED, SUMMED]}, "two have one stream"),
        (KEPT, {"sketch": [SUMMED | {"kinds": ["sample"]}]}, "not made on the device"),
        (KEPT, {"sketch": [SUMMED | {"kinds": ["hll", "hll"]}]}, "expected each kind once"),
        (KEPT, {"sketch": [SUMMED | {"window_s": 7}]}, "a part of a day"),
        (KEPT, {"sketch": [SUMMED | {"window_s": 1, "grace_s": 11}]}, "at most 10 windows"),
        (SPOKEN, {"absence": [absence(into="device_sketches")]}, "is the stream of sketches"),
    ],
)
def test_what_is_sketched_stays_here(
    source: dict[str, Any], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        AgentConfig.checked({"device": "d", "data_dir": "d", "source": [source]} | keys)


def test_rules_may_share_their_alerts_and_an_action_may_read_them() -> None:
    found = AgentConfig.checked(
        {
            "device": "d",
            "data_dir": "d",
            "source": [{"type": "json_lines", "stream": "speed"}],
            "absence": [absence(send=False), absence(name="b", send=False)],
            "action": [COMMAND | {"name": "a", "stream": "alerts"}],
        }
    )
    assert (found.local_streams, found.lanes["alerts"].value) == (frozenset({"alerts"}), "urgent")
