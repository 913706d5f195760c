"""Which connections speak for which devices."""

from __future__ import annotations

from edgewake.cloud.bridge.thingsboard.present import Present


def test_a_device_is_gone_when_the_last_of_its_connections_is() -> None:
    present: Present[str] = Present()
    present.speaks("old", "boiler")
    present.speaks("new", "boiler")
    assert present.of("boiler") == ["new", "old"]
    assert present.leave("new") == []
    assert present.of("boiler") == ["old"]
    assert present.leave("old") == ["boiler"]
    assert present.of("boiler") == []
    assert present.leave("old") == [], "it left"


def test_two_gateways_may_speak_for_one_device() -> None:
    present: Present[str] = Present()
    for client, device in (("a", "gw-a"), ("b", "gw-b"), ("a", "press"), ("b", "press")):
        present.speaks(client, device)
    present.speaks("a", "press")
    assert present.leave("a") == ["gw-a"]
    present.stops("b", "press")
    present.stops("b", "press")
    assert present.of("press") == []
    assert [*present] == ["b"]
