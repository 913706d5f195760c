"""What an agent needs, looked at one by one: each finding says what is there, or what to do.

Nothing is changed; a running agent is not disturbed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from edgewake.edge import status as status_file
from edgewake.edge.commands.broker_look import look
from edgewake.edge.commands.source_look import look as look_at_source
from edgewake.edge.config import AgentConfig
from edgewake.edge.log.damage.audit import verify
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.writing.reserve import RESERVE_NAME
from edgewake.edge.sources.config import SourceConfig
from edgewake.protocol.clock import CLOCK_FLOOR_MS, Clock
from edgewake.protocol.errors import EdgewakeError, LocalError


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    what: str
    good: bool
    said: str


def examine(config: AgentConfig, clock: Clock) -> Iterator[Finding]:
    """All findings, each as soon as it is there: a log of gigabytes takes minutes."""
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("clock", lambda: _clock(clock)),
        ("directory", lambda: _directory(config)),
        ("log", lambda: _log(config)),
        ("agent", lambda: _agent(config, clock)),
        *(
            (f"source {number} {source.type}", partial(_source, config, clock, source))
            for number, source in enumerate(config.source, 1)
        ),
        ("broker", lambda: look(config.mqtt)),
        *(
            (f"fallback {number}", partial(look, broker))
            for number, broker in enumerate(config.fallback, start=1)
        ),
    )
    return (_finding(what, check) for what, check in checks)


def _finding(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, check())
    except (EdgewakeError, OSError) as error:
        return Finding(what, False, str(error))


def _clock(clock: Clock) -> str:
    if clock.now_ms() < CLOCK_FLOOR_MS:
        raise LocalError(
            "a time before 2026, so it was never set: install chrony or systemd-timesyncd"
        )
    return "set"


def _directory(config: AgentConfig) -> str:
    path = config.data_dir
    nearest = next(each for each in (path, *path.parents) if each.exists())
    if not nearest.is_dir():
        raise LocalError(f"{nearest} is not a directory: expected one in `data_dir`")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise LocalError(f"{nearest} cannot be written by this user")
    free = os.statvfs(nearest).f_bavail * os.statvfs(nearest).f_frsize
    needed = (
        config.log.quota_bytes
        + config.log.consumer_bytes
        + config.log.wal_bytes_max
        + config.log.reserve_bytes
    )
    if free < needed and not (path / LOG_NAME).exists():
        raise LocalError(
            f"{free >> 20} MiB are free at {nearest}, the log may take {needed >> 20}: lower "
            "log.quota_bytes"
        )
    if (
        config.log.reserve_bytes > free
        and (path / LOG_NAME).exists()
        and not (path / RESERVE_NAME).exists()
    ):
        raise LocalError(
            f"{free >> 20} MiB are free at {nearest}, and nothing is kept aside for a full disk "
            "(log.reserve_bytes): free some"
        )
    return f"{path}, {free >> 20} MiB free"


def _log(config: AgentConfig) -> str:
    if not (config.data_dir / LOG_NAME).exists():
        return "none yet: it is made when the agent first runs"
    verdict = verify(config.data_dir)
    if verdict.fault_count:
        raise LocalError(
            f"{verdict.fault_count} faults, the first: {verdict.faults[0]}. The agent repairs what "
            "it can when it starts"
        )
    return f"sound: {verdict.readings} readings wait or are kept for consumers"


def _source(config: AgentConfig, clock: Clock, source: SourceConfig) -> str:
    """Ask the running agent about a source, which may have the port; else check from outside."""
    if (config.data_dir / LOG_NAME).exists():
        found = status_file.read(config.data_dir, now_ms=clock.now_ms())
        counts = next(
            (
                of
                for name, of in found.get("sources", {}).items()
                if name.split()[1:] == [source.type, source.stream]
            ),
            None,
        )
        if found["running"] and counts is not None:
            return f"{counts['state']}, {counts['taken']} taken"
    return look_at_source(source)


def _agent(config: AgentConfig, clock: Clock) -> str:
    if not (config.data_dir / LOG_NAME).exists():
        return "never ran here"
    found = status_file.read(config.data_dir, now_ms=clock.now_ms())
    if not found["running"]:
        return "not running"
    failing = [
        f"{name} ({counts['error']})"
        for name, counts in found.get("sources", {}).items()
        if counts["state"] == "waiting"
    ]
    if failing:
        raise LocalError(f"runs, but these sources fail: {', '.join(failing)}")
    return f"runs, {found['connection']}"
