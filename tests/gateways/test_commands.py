"""Commands for things, by the gateway that spoke for them last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateways.floor import Floor, Thing
from tests.services import wait_until

pytestmark = pytest.mark.services


def valve(folder: Path) -> tuple[str, ...]:
    """A command that notes each call, for things; and one for the gateway."""
    script = folder / "valve.sh"
    script.write_text('#!/bin/sh\necho "$EW $1 $2" >> "$(dirname "$0")/calls"\necho "$1 is $2"\n')
    script.chmod(0o755)
    return (
        "[downlink.command.open_valve]",
        f'argv = ["{script}", "{{thing}}", "open"]',
        "[downlink.command.own]",
        f'argv = ["{script}", "gateway", "fine"]',
    )


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def ask(here: Floor, device: str, name: str, **more: str) -> dict[str, object]:
    """What became of a command."""
    status, asked = here.ops("POST", f"/v1/devices/{device}/commands", {"name": name, **more})
    assert status == 202, asked
    path = f"/v1/devices/{device}/commands/{asked['id']}"
    wait_until(lambda: here.ops("GET", path)[1]["state"] != "waiting", "it was answered")
    found: dict[str, object] = here.ops("GET", path)[1]
    return found


def test_a_command_for_a_thing_is_done_once_by_the_gateway_that_it_is_behind(
    here: Floor, tmp_path: Path
) -> None:
    folders = {name: tmp_path / name for name in ("gw-cmd-1", "gw-cmd-2")}
    for name, folder in folders.items():
        folder.mkdir()
        here.start_gateway(name, *valve(folder))
    thing = Thing(here, "meter-cmd-1")
    for name in folders:
        thing.send_until_kept(name, 2)
        wait_until(lambda n=name: here.device(thing.name).get("via") == n, f"it is at {name}")  # type: ignore[misc]
        done = ask(here, thing.name, "open_valve")
        assert (done["state"], done["via"]) == ("done", name)
        assert done["answer"]["output"] == "meter-cmd-1 is open\n"  # type: ignore[index]
    assert [len(calls(folder)) for folder in folders.values()] == [1, 1]


@pytest.mark.long
def test_what_is_for_things_and_what_is_for_the_gateway_are_not_confused(
    here: Floor, tmp_path: Path
) -> None:
    here.start_gateway("gw-own", *valve(tmp_path))
    thing = Thing(here, "meter-own-1")
    thing.send_until_kept("gw-own", 1)
    wait_until(lambda: here.device(thing.name).get("via") == "gw-own", "it is there")
    for device, name, state in (
        (thing.name, "own", "refused"),
        ("gw-own", "open_valve", "refused"),
        ("gw-own", "own", "done"),
    ):
        assert ask(here, device, name)["state"] == state, (device, name)
    assert len(calls(tmp_path)) == 1
    status, problem = here.ops("PUT", f"/v1/devices/{thing.name}/config", {"text": ""})
    assert status == 409
    assert "behind the gateway gw-own" in problem["detail"]


@pytest.mark.long
def test_two_things_of_one_gateway_may_be_asked_under_the_same_id(
    here: Floor, tmp_path: Path
) -> None:
    here.start_gateway("gw-same", *valve(tmp_path))
    for name in ("meter-same-1", "meter-same-2"):
        Thing(here, name).send_until_kept("gw-same", 1)
        wait_until(lambda n=name: here.device(n).get("via") == "gw-same", "it is there")  # type: ignore[misc]
        done = ask(here, name, "open_valve", id="open-1")
        assert done["state"] == "done"
        assert done["answer"]["output"] == f"{name} is open\n"  # type: ignore[index]
    assert len(calls(tmp_path)) == 2
