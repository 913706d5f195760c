"""The agent's page for people: what is measured, what waits, what was lost.

Pure: status and latest readings are arguments.

It has no script: the browser loads it again every few seconds. All text in it is escaped, and its
policy lets nothing else be loaded.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from edgewake.edge.status import VALUE_CHARS_MAX, VALUES_MAX

REFRESH_S: Final = 5
"""Seconds after which the browser loads the page again."""
STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; background: Canvas }
body { max-width: 60rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1rem; margin: 1.5rem 0 .3rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top }
th { font-weight: 600 }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #c02020; font-weight: 600 } .good { color: #18794e }
@media (prefers-color-scheme: dark) { .bad { color: #ff8f93 } .good { color: #3ecf8e } }
code, td { overflow-wrap: anywhere } td.n { overflow-wrap: normal }
@media (max-width: 30rem) { th, td { font-size: .85rem; padding-right: .5rem } }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src "
    f"'sha256-{_STYLE_HASH}'"
)
"""Content-Security-Policy."""


def render(status: Mapping[str, Any], latest: Mapping[str, Mapping[str, Any]]) -> str:
    """The page. `latest`: stream → its last reading."""
    device = escape(str(status.get("device", "this device")))
    sources = _sources(status.get("sources", {}), is_running=status["running"])
    why = status.get("waits", {})
    waiting = [
        (name, of["waiting"], why.get(name, ""))
        for name, of in status["log"]["streams"].items()
        if of["waiting"] or name in why
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{REFRESH_S}"><title>{device} – Edgewake</title>
<style>{STYLE}</style></head><body><main>
<h1>{device}</h1>
<p id="state">{_state(status)}</p>
<h2>What is measured</h2>
{_table("measured", ("stream", "readings", "latest"), _measured(status["log"], latest))}
<h2>Who measures</h2>
{_table("sources", ("source", "state", "taken", "dropped", "refused"), sources)}
<h2>What waits for the cloud</h2>
<p id="waits">{_waits(status["log"])}</p>
{_table("waiting", ("stream", "readings", "asked to wait"), waiting)}
<h2>What was lost</h2>
<p id="lost">{_lost(status["log"]["lost"])}</p>{_one_way(status.get("uplink", {}))}
</main></body></html>
"""


def _state(status: Mapping[str, Any]) -> str:
    if not status["running"]:
        return '<span class="bad">The agent does not run.</span>'
    connection = escape(str(status.get("connection", "?")))
    kind = "good" if connection == "streaming" else "bad"
    return (
        f'The agent runs; connection: <span class="{kind}">{connection}</span>; log: '
        f"{escape(str(status.get('log_state', '?')))}"
    )


def _measured(
    log: Mapping[str, Any], latest: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[object, ...]]:
    return [
        (name, of["accepted"], _values(latest.get(name, {}))) for name, of in log["streams"].items()
    ]


def _values(reading: Mapping[str, Any]) -> str:
    fields = [(name, value) for name, value in reading.items() if name != "t"]
    shown = [f"{name} = {str(value)[:VALUE_CHARS_MAX]}" for name, value in fields[:VALUES_MAX]]
    at = (
        [datetime.fromtimestamp(reading["t"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC:")]
        if "t" in reading
        else []
    )
    return " ".join([*at, ", ".join([*shown, *(["…"] if len(fields) > VALUES_MAX else [])])])


def _sources(sources: Mapping[str, Any], *, is_running: bool) -> Iterable[tuple[object, ...]]:
    """Sources; their states are the last ones known where the agent does not run."""
    for name, of in sources.items():
        state = (
            of["state"]
            if of["state"] == "running" or not of["error"]
            else f"{of['state']}: {of['error']}"
        )
        if not is_running:
            state = f"was {state}"
        yield name, state, of["taken"], of["dropped"], sum(of["refused"].values())


def _waits(log: Mapping[str, Any]) -> str:
    oldest = log["oldest_unacked_s"]
    if not log["backlog_readings"]:
        return "Nothing: the cloud has it all."
    return (
        f"{log['backlog_readings']} readings, {log['backlog_bytes'] / 1024:.1f} KiB, the oldest "
        f"for {oldest or 0:.0f} s"
    )


def _lost(lost: Mapping[str, int]) -> str:
    found = [f"{count} readings ({escape(reason)})" for reason, count in lost.items() if count]
    return f'<span class="bad">{", ".join(found)}</span>' if found else "Nothing."


def _one_way(uplink: Mapping[str, Any]) -> str:
    dropped = uplink.get("one_way_dropped", 0)
    return (
        f'<p id="one_way"><span class="bad">{dropped} readings of one_way streams since the '
        "start</span></p>"
        if dropped
        else ""
    )


def _table(name: str, heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not body:
        return ""
    return (
        "<table "
        f'id="{name}"><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></'
        f"thead><tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    return (
        f'<td class="n">{value:,}</td>'
        if isinstance(value, int)
        else f"<td>{escape(str(value))}</td>"
    )
