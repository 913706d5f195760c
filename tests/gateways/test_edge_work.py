"""What a gateway makes of its things' readings is the things' own, up to the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateways.floor import Floor, Thing
from tests.services import wait_until

pytestmark = pytest.mark.services

WORK = """
[[chain]]
stream = "power"
into = "power_mean"
processor = [{{ type = "window", fields = ["n"], size_count = 3, aggregates = ["mean"] }}]

[[chain]]
stream = "power"
into = "power_alerts"
processor = [{{ type = "rule", name = "many", when = "n >= 3" }}]

[[sketch]]
stream = "power"
fields = ["n"]
kinds = ["numbers"]
window_s = 1
beside = true

[[absence]]
name = "quiet"
stream = "power"
into = "power_silences"
after_s = 3.0

[[action]]
name = "siren"
stream = "power_alerts"
type = "command"
command = ["{script}"]
user = "root"
pause_s = 0
"""


def test_chains_sketches_absences_and_actions_of_things(here: Floor, tmp_path: Path) -> None:
    calls, script = tmp_path / "calls", tmp_path / "siren.sh"
    script.write_text(f'#!/bin/sh\necho "$EDGEWAKE_DEVICE $EDGEWAKE_RULE" >> {calls}\n')
    script.chmod(0o755)
    here.start_gateway("gw-work", WORK.format(script=script))
    hall, bath = Thing(here, "meter-hall"), Thing(here, "meter-bath")
    for thing, count in ((hall, 2), (bath, 2), (hall, 1), (bath, 1)):
        thing.send_until_kept("gw-work", count)
    for thing in (hall, bath):
        wait_until(lambda t=thing: here.records("power_mean", t.name), "its window")  # type: ignore[misc]
        (mean,) = here.records("power_mean", thing.name)
        assert list(mean.frame.fields["n_mean"]) == [2.0], "of its own readings alone"
        assert mean.via == "gw-work"
        wait_until(lambda t=thing: here.records("power_alerts", t.name), "its alert")  # type: ignore[misc]
        (alert,) = here.records("power_alerts", thing.name)
        assert list(alert.frame.fields["rule"]) == ["many"]
    assert here.records("power_mean", "gw-work") == [], "nothing is mixed"
    said = sorted(f"{thing.name} many" for thing in (hall, bath))
    wait_until(lambda: calls.exists() and sorted(calls.read_text().splitlines()) == said, "sirens")

    def is_sketched(name: str) -> bool:
        return any(
            field == "n"
            for one in here.records("device_sketches", name)
            for field in one.frame.fields.get("of_field", ())
        )

    def is_sketched_of_both() -> bool:
        bath.send("gw-work")
        hall.send("gw-work")
        return is_sketched(hall.name) and is_sketched(bath.name)

    wait_until(is_sketched_of_both, "sketches of both")

    def silent() -> bool:
        """While the other one speaks."""
        bath.send("gw-work")
        return bool(here.records("power_silences", hall.name))

    wait_until(silent, "the silence of the one")
    wait_until(
        lambda: here.events("power_silences", f"device = '{hall.name}'"), "a client reads it"
    )
    shown = here.device(hall.name)
    assert {"power", "power_mean", "power_alerts", "device_sketches", "power_silences"} >= set(
        shown["streams"]
    )
