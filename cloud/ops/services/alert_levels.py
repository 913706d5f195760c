"""Evaluates rules over silence and over the system's own problems, from the server's tables.

Only the server that judges does so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from edgewake.cloud.alerts.condition import bounded, devices
from edgewake.cloud.alerts.judge import Judge, Levels
from edgewake.cloud.alerts.life import Seen
from edgewake.cloud.ops.services.problems import KnownProblem
from edgewake.cloud.ops.services.system_look import SystemLook
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.protocol.clock import Clock, moment
from edgewake.protocol.errors import FilterError, Unavailable
from edgewake.protocol.ops.alert import Rule

log = logging.getLogger("edgewake.alerts")

EVERY_S: Final = 2.0
"""Between two looks; one at all problems asks Kafka for the newest dead letters."""


async def look_again_and_again(
    judge: Judge, tables: OpsTables, system: SystemLook, clock: Clock
) -> None:
    """Look at the levels again and again, until cancelled."""
    while True:
        await clock.sleep(EVERY_S)
        if not judge.leads:
            continue
        try:
            await _look(judge, tables, system, clock)
        except Unavailable as error:
            log.warning("rules over problems wait: %s", error, extra={"event": "alerts.away"})


async def _look(judge: Judge, tables: OpsTables, system: SystemLook, clock: Clock) -> None:
    now = clock.now_ms()
    rules = list(tables.alerts.rules.values())
    for rule in rules:
        if rule.silent_s is not None:
            judge.news.put(Levels(rule.name, now, silent(rule, tables, now)))
            await clock.sleep(0)
    over_problems = [rule for rule in rules if rule.problems is not None]
    if over_problems:
        found = (await system.look()).problems
        for rule in over_problems:
            held = of_problems(rule, found, now)
            judge.news.put(Levels(rule.name, now, held))


def silent(rule: Rule, tables: OpsTables, now: int) -> Mapping[str, Seen]:
    """Devices that are silent, by name. A rule that cannot be read holds for none."""
    assert rule.silent_s is not None
    try:
        is_meant = devices(rule)
    except FilterError as error:
        log.error("rule %s: %s", rule.name, error, extra={"event": "alerts.rule"})
        return {}
    found = tables.devices.silent(now - rule.silent_s * 1000, rule.stream)
    return {
        device: Seen(device, now, holds=True, value=f"last heard {moment(heard)}")
        for device, heard in found.items()
        if is_meant({"device": device}) is True
    }


def of_problems(rule: Rule, problems: Sequence[KnownProblem], now: int) -> Mapping[str, Seen]:
    """Problems of the kinds that a rule is about, by kind and name."""
    kinds = rule.problems or ()
    held = {}
    for problem in problems:
        if not kinds or problem.kind in kinds:
            key = bounded(f"{problem.kind} {problem.name}".strip())
            held[key] = Seen(key, now, holds=True, value=problem.text[:200], why=problem.text)
    return held
