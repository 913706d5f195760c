"""The commands that show what the operations API knows, against a running one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.frame import FRAME_TYPE, Frame, encode
from edgewake.protocol.leases import lease_record
from edgewake.protocol.ops.device import DeviceSeen
from tests.ops.conftest import T0, Writer
from tests.ops.service import KEY, Ops, running
from tests.ops.test_app import declare, eventually, sql
from tests.push.builders import lease
from tests.services import PATIENCE_S, Kafka, wait_until


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    with running(kafka.bootstrap, tmp_path_factory.mktemp("commands")) as service:
        yield service


def run(ops: Ops, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "EDGEWAKE_OPS_URL": ops.url,
        "EDGEWAKE_OPS_KEY": KEY,
        "PATH": "/usr/bin",
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "edgewake.deploy.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment
    )


def printed(ops: Ops, *arguments: str) -> Any:
    done = run(ops, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_devices_are_listed_shown_and_forgotten(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    seen = DeviceSeen(device=device, last_seen=T0, skew_ms=1, records=3, streams={"weather": 3})
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    eventually(lambda: ops.client.get(f"/v1/devices/{device}"))
    assert device in [
        found["device"]
        for found in printed(ops, "devices", "list", "--state", "silent", "--limit", "100000")
    ]
    assert printed(ops, "devices", "show", device)["streams"] == ["weather"]
    table = run(ops, "devices", "list", "--table", "--limit", "100000").stdout
    assert any(device in line and "silent" in line for line in table.splitlines())
    assert run(ops, "devices", "remove", device).returncode == 0
    wait_until(
        lambda: ops.client.get(f"/v1/devices/{device}").status_code == 404,
        "the device is forgotten",
    )
    gone = run(ops, "devices", "show", device)
    assert (gone.returncode, "nothing is known" in gone.stderr) == (1, True)


def test_streams_are_listed_with_their_fields(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    assert stream in [
        found["name"] for found in printed(ops, "streams", "list", "--limit", "100000")
    ]
    assert printed(ops, "streams", "show", stream)["fields"]["speed"]["type"] == "number"
    shown = run(ops, "streams", "show", stream, "--table").stdout
    assert re.search(r"speed +│ speed +│ number", shown)


def test_a_field_is_declared_before_its_stream_is_there_and_described(
    ops: Ops, unique: Callable[[str], str]
) -> None:
    stream = unique("declared")
    said = printed(ops, "streams", "field", stream, "temp", "--type", "number", "--unit", "Cel")
    assert (said["field"], said["type"], said["unit"], said["revision"]) == (
        "temp",
        "number",
        "Cel",
        1,
    )
    assert run(ops, "streams", "describe", stream, "What the shed measures").returncode == 0
    shown = printed(ops, "streams", "show", stream)
    assert (shown["description"], shown["fields"]["temp"]["unit"]) == (
        "What the shed measures",
        "Cel",
    )
    assert printed(ops, "streams", "field", stream, "temp", "--unit", "K")["type"] == "number"
    for arguments, why in (
        ((stream, "temp"), "expected --type or --unit"),
        ((stream, "other", "--unit", "m"), "expected its type"),
        ((unique("nobody"), "v", "--unit", "m"), "expected its type"),
        (("part_status", "v", "--type", "number"), "reserved for the system"),
    ):
        refused = run(ops, "streams", "field", *arguments)
        assert (refused.returncode != 0, why in refused.stderr) == (True, True), refused.stderr


def test_a_plain_reading_with_an_odd_value_is_given_back_with_its_text_beside(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    letter = DeadLetter(
        reason="field_type",
        detail="why",
        topic=topics.up(device, stream),
        part="bridge-1",
        received_at=T0,
    )
    offset = str(writer.put(topics.DEAD, device, b'{"speed": "fast"}', letter.headers())[1])
    (done,) = printed(ops, "dead-letters", "replay", offset)
    assert done["was_replayed"] is False
    beside = printed(ops, "streams", "show", stream)["fields"]["speed_odd"]
    assert (beside["type"], beside["revision"]) == ("string", 0)


def test_dead_letters_are_listed_and_shown_byte_for_byte(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    first = writer.dead_letter(device, b"first", RejectReason.TIME)
    writer.dead_letter(device, b'{"a": \xff}')
    assert [
        letter["reason"] for letter in printed(ops, "dead-letters", "list", "--device", device)
    ] == ["json", "time"]
    assert [
        letter["offset"]
        for letter in printed(ops, "dead-letters", "list", "--device", device, "--reason", "time")
    ] == [first]
    assert run(ops, "dead-letters", "show", str(first)).stdout == "first"


def test_a_dead_letter_is_given_back_once_its_cause_is_mended(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    letter = DeadLetter(
        reason="field_type",
        detail="why",
        topic=topics.up(device, stream),
        part="bridge-1",
        received_at=T0,
        content_type=FRAME_TYPE,
    )
    fast = encode(Frame(1, 1, 1, [T0], {"speed": ["fast"]}))
    offset = str(writer.put(topics.DEAD, device, fast, letter.headers())[1])
    refused = run(ops, "dead-letters", "replay", offset)
    assert (refused.returncode, "expected a number, found a string" in refused.stderr) == (
        1,
        True,
    ), refused.stderr
    decided = printed(ops, "streams", "field", stream, "speed", "--type", "string")
    assert (decided["type"], decided["revision"]) == ("string", 1)
    (done,) = printed(ops, "dead-letters", "replay", offset)
    assert (done["letter"], done["device"], done["stream"], done["was_replayed"]) == (
        int(offset),
        device,
        stream,
        False,
    )
    assert (
        printed(ops, "dead-letters", "replay", offset, offset)
        == [done | {"was_replayed": True}] * 2
    )
    assert run(ops, "dead-letters", "replay", str(2**40)).returncode == 1


def test_an_ack_token_is_followed_to_its_stream(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    token = writer.received(device, stream, 1)
    writer.sequenced(device, stream, 1, token)
    found = printed(ops, "ack", str(token))
    assert (found["state"], found["device"], found["stream"]) == ("sequenced", device, stream)
    assert run(ops, "ack", "no-token").returncode == 2


def test_leases_are_listed(ops: Ops, writer: Writer, unique: Callable[[str], str]) -> None:
    kept = lease(unique("lease"))
    writer.put(topics.LEASES, kept.id, lease_record.encode(kept))
    eventually(
        lambda: ops.client.get("/v1/leases", params={"limit": 500}),
        lambda p: kept.id in [item["id"] for item in p["items"]],
    )
    assert kept.id in [item["id"] for item in printed(ops, "leases")]
    writer.put(topics.LEASES, kept.id, None)


def test_a_query_file_is_checked_and_not_registered(
    ops: Ops, writer: Writer, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stream, name = unique("s"), unique("q")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    file = tmp_path_factory.mktemp("sql") / "q.sql"
    file.write_text(sql(name, stream))
    found = printed(ops, "query", "check", str(file))
    assert (found["name"], found["stream"], found["columns"]) == (
        name,
        stream,
        ["window_start", "window_end", "device", "mean"],
    )
    assert (found["streams"], found["execution"], len(found["plan"])) == ([stream], "shared", 4)
    told = run(ops, "query", "--table", "check", str(file)).stdout
    assert f"query {name} reads {stream} and gives window_start" in told
    assert "\nshared: " in told
    assert f"\n1. read {stream}, as it is: speed\n" in told
    assert ops.client.get(f"/v1/queries/{name}").status_code == 404
    file.write_text(sql(name, stream).replace("speed", "sped"))
    refused = run(ops, "query", "check", str(file))
    assert (
        refused.returncode,
        "line 3:" in refused.stderr,
        "did you mean 'speed'?" in refused.stderr,
    ) == (1, True, True)


def test_how_long_a_stream_is_kept_is_shown_and_changed(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    shown = run(ops, "streams", "keep", stream, "--days", "2.5", "--json")
    assert json.loads(shown.stdout)["kept_ms"] == 216_000_000, shown.stderr
    again = run(ops, "streams", "keep", stream, "--json")
    assert json.loads(again.stdout) == json.loads(shown.stdout)
    refused = run(ops, "streams", "keep", stream, "--days", "0")
    assert (refused.returncode, "--days" in refused.stderr) == (2, True)


def test_status_names_what_needs_attention_and_ends_with_1(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    reason = RejectReason.VERSION
    offset = writer.put(topics.DEAD, unique("dev"), b"x", _letter_now(reason))[1]
    wait_until(
        lambda: ops.client.get(f"/v1/dead-letters/{offset}").status_code == 200,
        "the letter can be read",
    )
    done = run(ops, "status")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (done.returncode, found["dead_letters"]["version"]) == (1, 1)
    assert any(
        "(version): edgewake dead-letters list --reason version" in problem
        for problem in found["problems"]
    )
    assert set(found["devices"]) == {"online", "offline", "silent"}
    shown = run(ops, "status", "--table")
    assert "needs attention:" in shown.stdout, shown.stderr


def _letter_now(reason: RejectReason) -> list[tuple[str, bytes]]:
    import time

    now = time.time_ns() // 1_000_000
    return DeadLetter(
        reason=reason, detail="why", topic="t", part="bridge-1", received_at=now
    ).headers()
