"""The status of an agent: the running one's report and its log's contents, for people and programs.

The running agent replaces `status.json` in its directory now and then; the log is opened read-only.
So the status can be asked of a dead agent too, and asking never disturbs a living one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.edge.log.keeping.frames import UNSET_CLOCK
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.gaps import given_up
from edgewake.edge.log.tables.schema import BACKLOG_BYTES, RETAINED_BYTES, reading
from edgewake.edge.log.tables.tables import read_consumers
from edgewake.protocol.errors import LocalError
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.names import is_reserved

STATUS_NAME: Final = "status.json"
VALUES_MAX: Final = 12
"""Fields of a latest reading that are shown."""
VALUE_CHARS_MAX: Final = 60
"""Characters of a value that are shown."""
STALE_AFTER: Final = 3
"""Status intervals without news after which an agent is taken for dead."""


def write(directory: Path, status: dict[str, Any]) -> None:
    """Replace the file in one step. Not synced: it is news, not data."""
    path = directory / STATUS_NAME
    fresh = path.with_suffix(".new")
    fresh.write_bytes(orjson.dumps(status))
    fresh.replace(path)


def shown(latest: Mapping[str, Reading]) -> dict[str, dict[str, Scalar]]:
    """The last reading of each stream as the status shows it.

    It is `t`, as many fields as are shown and one more, texts cut.
    """
    return {
        stream: {"t": t}
        | {name: _cut(value) for name, value in islice(fields.items(), VALUES_MAX + 1)}
        for stream, (t, fields) in latest.items()
        if not is_reserved(stream)
    }


def _cut(value: Scalar) -> Scalar:
    return value[:VALUE_CHARS_MAX] if isinstance(value, str) else value


def read(directory: Path, *, now_ms: int) -> dict[str, Any]:
    """The agent's own words and the log's figures.

    Raises LocalError without a log, or where it cannot be read.
    """
    return _running(directory, now_ms) | {"log": read_log(directory, now_ms=now_ms)}


def _running(directory: Path, now_ms: int) -> dict[str, Any]:
    try:
        said: dict[str, Any] = orjson.loads((directory / STATUS_NAME).read_bytes())
        age_s = (now_ms - said["written_at"]) / 1000
        running = _alive(said["pid"]) and age_s < STALE_AFTER * said["interval_s"]
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        # It is not synced: a machine that stopped may have left half of it.
        return {"running": False}
    return {"running": running, "age_s": round(age_s, 1), **said}


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False  # names no process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_log(directory: Path, *, now_ms: int) -> dict[str, Any]:
    """The log's figures, in one short transaction. Raises LocalError."""
    with reading(directory) as db:
        db.execute("BEGIN")
        epoch = db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        if epoch is None:
            raise LocalError(
                f"{directory}: the event log has no epoch yet; an agent that is just starting "
                "writes it, ask again"
            )
        return {"epoch": int(epoch[0]), **_figures(db, now_ms)}


def _figures(db: sqlite3.Connection, now_ms: int) -> dict[str, Any]:
    """Read the figures of the log.

    However much waits, only a few rows are read: of each stream, frame, gap and consumer, and the
    counters.
    """
    frames, in_frames, oldest_frame = db.execute(
        "SELECT count(*), coalesce(sum(count) FILTER (WHERE gap IS NULL), 0), min(accepted_at) "
        "FROM frames"
    ).fetchone()
    gone = given_up(db)
    readings = db.execute("SELECT coalesce(sum(last - framed), 0) FROM streams").fetchone()[
        0
    ] - sum(gone.values())
    first_waiting = (
        "SELECT accepted_at FROM batches WHERE stream = id AND first > framed ORDER BY first "
        "LIMIT 1"
    )
    oldest_batches = [at for (at,) in db.execute(f"SELECT ({first_waiting}) FROM streams")]  # noqa: S608
    copied_bytes = db.execute("SELECT coalesce(sum(length(payload)), 0) FROM frames").fetchone()[0]
    counters = dict(db.execute("SELECT name, value FROM counters"))
    oldest = min((at for at in (oldest_frame, *oldest_batches) if at is not None), default=None)
    in_frames_of = "(SELECT coalesce(sum(count), 0) FROM frames WHERE stream = id AND gap IS NULL)"
    streams = db.execute(
        f"SELECT name, last, frame, last - framed + {in_frames_of} FROM streams ORDER BY name"  # noqa: S608
    ).fetchall()
    accepted = {name: last for name, last, _, _ in streams}
    return {
        "backlog_readings": max(0, in_frames + readings),
        "backlog_bytes": counters.get(BACKLOG_BYTES, 0) + copied_bytes,
        "retained_bytes": counters.get(RETAINED_BYTES, 0),
        "frames": frames,
        "oldest_unacked_s": None if oldest is None else max(0.0, (now_ms - oldest) / 1000),
        "lost": {
            name.removeprefix("lost_"): value
            for name, value in counters.items()
            if name.startswith("lost_")
        },
        "unset_clock_readings": counters.get(UNSET_CLOCK, 0),
        "streams": {
            name: {
                "accepted": last,
                "last_frame": frame,
                "waiting": max(0, waiting - gone.get(name, 0)),
            }
            for name, last, frame, waiting in streams
        },
        "consumers": {
            consumer.name: _consumer(consumer, accepted) for consumer in read_consumers(db)
        },
    }


def _consumer(consumer: ConsumerState, accepted: dict[str, int]) -> dict[str, int]:
    behind = 0
    for stream, last in accepted.items():
        at = consumer.position(stream)
        if at is not None:
            behind += max(0, last - at)
    return {"behind": behind, "missed": consumer.missed}


def table(status: dict[str, Any]) -> str:
    """Format the status for people."""
    log = status["log"]
    oldest = log["oldest_unacked_s"]
    rows = [
        ("agent", f"running, pid {status['pid']}" if status["running"] else "not running"),
        ("device", str(status.get("device", "?"))),
        ("connection", str(status.get("connection", "?")) if status["running"] else "-"),
        ("log", str(status.get("log_state", "?")) if status["running"] else "-"),
        ("epoch", str(log["epoch"])),
        (
            "backlog",
            f"{log['backlog_readings']} readings, {log['backlog_bytes'] / 1024:.1f} KiB, "
            f"{log['frames']} frames formed",
        ),
        ("oldest", "-" if oldest is None else f"{oldest:.1f} s"),
        ("lost", ", ".join(f"{count} {reason}" for reason, count in log["lost"].items()) or "0"),
    ]
    if unset := log.get("unset_clock_readings"):
        rows.append(("clock", f"{unset} readings were sent with times from before it was set"))
    if one_way := _one_way(status.get("uplink", {})):
        rows.append(("one_way", one_way))
    rows += [
        (f"stream {name}", f"{of['accepted']} accepted, {of['waiting']} waiting")
        for name, of in log["streams"].items()
    ]
    rows += [(f"waits {name}", why) for name, why in status.get("waits", {}).items()]
    rows += [
        (f"consumer {name}", f"{of['behind']} behind, {of['missed']} missed")
        for name, of in log["consumers"].items()
    ]
    rows += [
        (f"source {name}", _counts(counts)) for name, counts in status.get("sources", {}).items()
    ]
    rows += [(f"chain {into}", _chain(counts)) for into, counts in status.get("chains", {}).items()]
    rows += [
        (f"absence {name}", _absence(counts)) for name, counts in status.get("absences", {}).items()
    ]
    rows += [
        (f"sketch {stream}", _sketch(counts))
        for stream, counts in status.get("sketches", {}).items()
    ]
    rows += [
        (f"action {name}", _action(counts)) for name, counts in status.get("actions", {}).items()
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _one_way(uplink: dict[str, Any]) -> str:
    """The counts of readings that are never logged; empty without any."""
    sent, dropped = uplink.get("one_way_sent", 0), uplink.get("one_way_dropped", 0)
    return f"{sent} sent, {dropped} dropped since the start" if sent or dropped else ""


def _chain(counts: dict[str, Any]) -> str:
    remarks = [
        f"{count} {remark} in {name}"
        for name, said in counts["remarks"].items()
        for remark, count in said.items()
    ]
    return ", ".join([f"{counts['in']} of {counts['stream']} in, {counts['out']} out", *remarks])


def _absence(counts: dict[str, Any]) -> str:
    return (
        f"{counts['stream']} {'is silent' if counts['active'] else 'speaks'}, {counts['raised']} "
        "raised"
    )


def _sketch(counts: dict[str, Any]) -> str:
    return (
        f"{counts['counted']} readings in sketches, {counts['late']} late, {counts['missed']} "
        f"missed, {counts['restarts']} restarts"
    )


def _action(counts: dict[str, Any]) -> str:
    from edgewake.edge.actions.progress import Outcome  # with what only people ask for

    text = (
        ", ".join(
            f"{counts[outcome.value]} {outcome.value}"
            for outcome in Outcome
            if counts[outcome.value]
        )
        or "nothing yet"
    )
    return f"{counts['type']} on {counts['stream']}: {text}" + (
        f" (last: {counts['error']})" if counts["error"] else ""
    )


def _counts(counts: dict[str, Any]) -> str:
    refused = ", ".join(f"{count} {reason}" for reason, count in counts["refused"].items()) or "0"
    text = f"{counts['taken']} taken, {counts['dropped']} dropped, refused {refused}"
    if away := counts.get("turned_away"):
        text += f", {away} turned away (their sender has them)"
    text += "".join(f", {count} {remark}" for remark, count in counts.get("remarks", {}).items())
    text += "".join(
        f", {path!r} is {name}"
        for name, path in islice(counts.get("names", {}).items(), VALUES_MAX)
    )
    return (
        text
        if counts["state"] == "running"
        else f"{counts['state']} ({counts['error'] or 'what it read has ended'}); {text}"
    )
