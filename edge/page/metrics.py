"""The agent's status as Prometheus reads it (text exposition format 0.0.4).

Pure: the status is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "edgewake_agent_"

Sample = tuple[Mapping[str, str], float]


def exposition(status: Mapping[str, Any]) -> str:
    """Format all metrics of `edgewake.edge.status.read`."""
    lines: list[str] = []
    for name, kind, text, samples in _families(status):
        lines += [f"# HELP {_PREFIX}{name} {text}", f"# TYPE {_PREFIX}{name} {kind}"]
        lines += [f"{_PREFIX}{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(status: Mapping[str, Any]) -> Iterator[tuple[str, str, str, list[Sample]]]:
    log, sources = status["log"], status.get("sources", {})
    streams = log["streams"]
    yield "up", "gauge", "1 while the agent runs.", [({}, int(status["running"]))]
    version = status.get("version")
    yield "build_info", "gauge", "1; what runs.", [({"version": version}, 1)] if version else []
    yield "uptime_seconds", "gauge", "Since the agent started.", [({}, _uptime_s(status))]
    yield (
        "connected",
        "gauge",
        "1 while it is connected to the broker.",
        [({}, int(_is_connected(status)))],
    )
    yield (
        "backlog_readings",
        "gauge",
        "Readings that the cloud does not have yet.",
        [({}, log["backlog_readings"])],
    )
    yield "backlog_bytes", "gauge", "Bytes of them in the log.", [({}, log["backlog_bytes"])]
    yield (
        "oldest_unacked_seconds",
        "gauge",
        "Age of the oldest of them; 0 without any.",
        [({}, log["oldest_unacked_s"] or 0)],
    )
    yield (
        "lost_readings_total",
        "counter",
        "Readings given up, by reason.",
        [({"reason": r}, n) for r, n in log["lost"].items()],
    )
    one_way = status.get("uplink", {})
    yield (
        "one_way_sent_total",
        "counter",
        "Readings of one_way streams sent.",
        [({}, one_way.get("one_way_sent", 0))],
    )
    yield (
        "one_way_dropped_total",
        "counter",
        "Readings of one_way streams dropped.",
        [({}, one_way.get("one_way_dropped", 0))],
    )
    yield (
        "accepted_readings_total",
        "counter",
        "Readings accepted.",
        [({"stream": s}, of["accepted"]) for s, of in streams.items()],
    )
    yield (
        "waiting_readings",
        "gauge",
        "Readings of a stream that wait.",
        [({"stream": s}, of["waiting"]) for s, of in streams.items()],
    )
    yield (
        "source_up",
        "gauge",
        "1 while a source runs.",
        [({"source": s}, int(of["state"] == "running")) for s, of in sources.items()],
    )
    for name, text in (
        ("taken", "Readings taken."),
        ("dropped", "Readings dropped at a full queue."),
        ("failures", "Failures."),
    ):
        yield (
            f"source_{name}_total",
            "counter",
            text,
            [({"source": s}, of[name]) for s, of in sources.items()],
        )
    refused: list[Sample] = [
        ({"source": s, "reason": r}, n)
        for s, of in sources.items()
        for r, n in of["refused"].items()
    ]
    yield "source_refused_total", "counter", "Readings refused, by reason.", refused


def _uptime_s(status: Mapping[str, Any]) -> float:
    """Seconds since the start, with those since it was said; 0 of an agent that does not run."""
    if not status["running"]:
        return 0.0
    return float(status.get("uptime_s", 0.0) + status.get("age_s", 0.0))


def _is_connected(status: Mapping[str, Any]) -> bool:
    return bool(status["running"]) and status.get("connection") == "streaming"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
