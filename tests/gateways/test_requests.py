"""A thing asks the cloud through its gateway, and the gateway hands it its reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateways.floor import Floor
from tests.services import free_ports, wait_until

pytestmark = pytest.mark.services

ASKING = """
[[source]]
type = "http_intake"
stream = "device_requests"
things = "devices"
port = {port}

[downlink]
requests = true

[[action]]
name = "hand-over"
stream = "ew_replies"
type = "command"
command = ["{script}"]
user = "root"
pause_s = 0
"""


def request_of(here: Floor, device: str) -> dict[str, Any]:
    status, found = here.ops("GET", f"/v1/devices/{device}/requests/r-1")
    return found if status == 200 else {}


def test_things_ask_by_their_gateway_and_each_hears_its_own_reply(
    here: Floor, tmp_path: Path
) -> None:
    out, script = tmp_path / "replies", tmp_path / "hand-over.sh"
    script.write_text(f"#!/bin/sh\ncat >> {out}; echo >> {out}\n")
    script.chmod(0o755)
    (port,) = free_ports(1)
    here.start_gateway("gw-ask", ASKING.format(port=port, script=script))
    things = ("meter-ask-1", "meter-ask-2")
    asked = [{"thing": one, "id": "r-1", "name": "tariff", "body": one} for one in things]
    wait_until(lambda: here.post("gw-ask", asked, port), "it is asked")
    for one in things:
        wait_until(lambda t=one: request_of(here, t), "the cloud has it")  # type: ignore[misc]
        assert (request_of(here, one)["body"], request_of(here, one)["via"]) == (one, "gw-ask")
        answer = {"state": "answered", "body": f"night, {one}"}
        status, told = here.ops("POST", f"/v1/devices/{one}/requests/r-1/reply", answer)
        assert status < 300, told
        wait_until(lambda t=one: request_of(here, t)["delivered_at"], "it has it")  # type: ignore[misc]

    def told_here() -> set[tuple[str, str]]:
        lines = out.read_text().splitlines() if out.exists() else []
        found = [json.loads(line) for line in lines if line]
        return {(one["device"], one["body"]) for one in found}

    wait_until(lambda: told_here() == {(one, f"night, {one}") for one in things}, "each its own")
    assert here.records("ew_replies", things[0]) == [], "replies stay at the gateway"
