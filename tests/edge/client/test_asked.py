"""What a follower asks a server for."""

from __future__ import annotations

import pytest

from edgewake.edge.client.asked import Options, asked
from edgewake.protocol.leases.lease import Subscription

WANTED = Subscription(streams=("cars",), where="n > 1")
OPTIONS = Options(sample=0.5, per=("line", "stop"), slow="skip", slow_after_s=60)


def test_all_words_stand_in_the_address() -> None:
    found = asked(WANTED, OPTIONS, "earliest", "stop")
    assert (found.method, found.body) == ("GET", None)
    words = dict(found.params)
    assert {name: words[name] for name in ("where", "sample", "per", "slow", "slow_after")} == {
        "where": "n > 1",
        "sample": 0.5,
        "per": "line,stop",
        "slow": "skip",
        "slow_after": 60,
    }
    assert "slow" not in dict(asked(WANTED, Options(), "latest", None).params)


def test_with_devices_they_stand_in_a_body() -> None:
    found = asked(WANTED, Options(devices=["car-1"], slow="end"), "latest", None)
    assert found.method == "POST"
    assert found.body is not None
    assert (found.body["devices"], found.body["slow"]) == (["car-1"], "end")


def test_too_many_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 to 10000"):
        Options(devices=[str(n) for n in range(10_001)])
