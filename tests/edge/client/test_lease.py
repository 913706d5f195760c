"""A lease as its client keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from edgewake.edge.client import Options, Published, WakePolicy
from edgewake.edge.client import lease as leases
from edgewake.edge.client.lease import BadAnswer, Kept
from tests.edge.client.test_sleeper import WANTED


@pytest.mark.parametrize(
    "spoil",
    [
        lambda words: words | {"id": "../other"},
        lambda words: words | {"token": "two\r\nlines"},
        lambda words: words | {"token": 5},
        lambda words: words | {"cursor": ""},
        lambda _: [],
    ],
)
def test_an_answer_that_is_no_lease_is_refused(spoil: Callable[[Any], Any]) -> None:
    good = {"id": "a1", "token": "t", "cursor": "c"}
    kept = Kept("key", "{}")
    assert leases.granted(kept, json.dumps(good).encode()).is_granted
    with pytest.raises(BadAnswer, match="expected"):
        leases.granted(kept, json.dumps(spoil(good)).encode())


def test_what_is_kept_comes_back() -> None:
    kept = Kept("key", leases.request_of(WANTED, "c0", WakePolicy()), "a1", "t0ken", "c1", 7)
    assert leases.decode(leases.encode(kept)) == kept
    assert "t0ken" not in repr(kept), "the token is shown nowhere"
    for spoiled in (b"", b"[]", b"{}", b'{"key":1}', leases.encode(kept)[:-9]):
        with pytest.raises(ValueError, match=r"kept|object|JSON|input|unexpected|empty"):
            leases.decode(spoiled)


def asked(wanted: Any, **options: Any) -> Any:
    found = leases.request_of(wanted, "c0", WakePolicy(), options=Options(**options))
    return json.loads(found)["subscription"]


def test_what_it_asks_for_is_what_a_follower_asks_for() -> None:
    """It was streams, `where` and `select` alone."""
    harbour = Published("harbour", where="n > 1")
    assert asked(WANTED) == {"streams": ["s"]}, "as ever: a lease of before is the same one"
    assert asked(harbour) == {"streams": [], "publication": "harbour", "where": "n > 1"}
    of_some = asked(WANTED, devices=["car-1"], sample=0.5, per=["line", "stop"])
    assert of_some == {
        "streams": ["s"],
        "devices": ["car-1"],
        "sample": 0.5,
        "per": "line,stop",
    }


@pytest.mark.parametrize("pace", [{"conflate_ms": 100}, {"max_rate": 5.0}, {"slow": "skip"}])
def test_a_wake_up_has_no_pace(pace: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a wake-up is one for many: expected devices"):
        asked(WANTED, **pace)
