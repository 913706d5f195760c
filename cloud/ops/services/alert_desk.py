"""What people do with alerts: rules and destinations are kept, words are said, notes are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.alerts import condition, destination
from edgewake.cloud.alerts.destination import DestinationRefused, DestinationText
from edgewake.cloud.alerts.judge import Tried
from edgewake.cloud.alerts.sender import Sender
from edgewake.cloud.calls.endpoint import EndpointRefused
from edgewake.cloud.calls.sealing import Damaged, Endpoint, Sealer, UnknownKey
from edgewake.cloud.ops.services.versions import is_same, keep, next_stamp
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import FilterError
from edgewake.protocol.frames.event_time import zone_of
from edgewake.protocol.ops.alert import Destination, Note, Rule, RuleText, Severity, Word

RULES_MAX: Final = 200
"""Rules kept; each looks at every reading of its stream."""
DESTINATIONS_MAX: Final = 100
"""Destinations kept: people and rooms, not devices."""
HEARD_S: Final = 5.0
"""How long a word may take until the server that judges has heard it."""
LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class AlertDesk:
    """Stores rules and destinations, acknowledges alerts and tests notes."""

    writer: TableWriter
    tables: OpsTables
    clock: Clock
    new_id: Callable[[], str]
    random_bytes: Callable[[int], bytes]
    sealer: Sealer | None
    sender: Sender
    allow_hosts: tuple[str, ...]

    def check(self, text: RuleText) -> None:
        """Raises Problem(422) where a rule cannot be judged."""
        try:
            condition.check(text)
        except FilterError as error:
            raise Problem(422, "rule", f"when or until: {error}") from error
        if text.quiet is not None:
            try:
                zone_of(text.quiet.zone)
            except ValueError as error:
                detail = f"quiet: unknown zone {text.quiet.zone!r}; expected one as Europe/Berlin"
                raise Problem(422, "rule", detail) from error
        unknown = sorted(set(text.tell) - set(self.tables.alerts.destinations))
        if unknown:
            text_ = f"tell: there is no destination {unknown[0]!r}; make it first, or leave it out"
            raise Problem(422, "rule", text_)

    def rule(self, name: str) -> Rule:
        """Raises Problem(404)."""
        found = self.tables.alerts.rules.get(name)
        if found is None:
            raise Problem(
                404, "no_such_rule", f"unknown alert rule {name!r}; GET /v1/alerts lists them"
            )
        return found

    async def put(
        self, name: str, text: RuleText, *, version: int | None, by: str
    ) -> tuple[Rule, bool]:
        """The rule, and whether it is new.

        `version`: the one that was changed, where that is known. The same text again changes
        nothing. Raises Problem or Unavailable.
        """
        self.check(text)
        is_new = False

        def change(before: Rule | None) -> Rule:
            nonlocal is_new
            is_new = before is None
            if before is not None and is_same(before, text):
                return before
            stamp = next_stamp(f"rule {name!r}", before, version, by=by, now=self.clock.now_ms())
            if before is None and len(self.tables.alerts.rules) >= RULES_MAX:
                raise Problem(
                    409,
                    "too_many_rules",
                    f"{RULES_MAX} alert rules exist already, the most that are kept; remove some",
                )
            return Rule(**text.model_dump(), name=name, **stamp)

        row = await keep(
            self.writer,
            topics.ALERT_RULES,
            f"rule|{name}",
            lambda: self.tables.alerts.rules.get(name),
            change,
        )
        return row, is_new

    async def remove(self, name: str) -> None:
        """Its alerts go with it. Raises Problem or Unavailable."""
        self.rule(name)
        await self.writer.write(topics.ALERT_RULES, f"rule|{name}", None)

    async def say(self, word: Word) -> None:
        """Returns when it was heard. Raises Problem or Unavailable."""
        self.rule(word.rule)
        if word.key is not None and word.key not in self.tables.alerts.alerts.get(word.rule, {}):
            detail = f"rule {word.rule!r} has no alert of {word.key!r}"
            raise Problem(404, "no_such_alert", detail)
        await self.writer.write(topics.ALERT_RULES, f"word|{word.id}", word)
        deadline_s = self.clock.monotonic_s() + HEARD_S
        while word.id in self.tables.alerts.words:
            if self.clock.monotonic_s() > deadline_s:
                detail = "it is kept, and heard as soon as an operations server judges alerts again"
                raise Problem(503, "not_heard_yet", detail)
            await self.clock.sleep(LOOK_S)

    async def put_destination(
        self, name: str, text: DestinationText, *, by: str
    ) -> tuple[Destination, str | None]:
        """The row, and a webhook's secret where one was made. Raises Problem or Unavailable."""
        if self.sealer is None:
            detail = "this server has no seal_key_file, so it keeps no secrets of destinations"
            raise Problem(409, "no_seal_key", detail)
        known = self.tables.alerts.destinations
        if name not in known and len(known) >= DESTINATIONS_MAX:
            detail = f"{DESTINATIONS_MAX} destinations are kept, no more"
            raise Problem(409, "too_many_destinations", detail)
        try:
            row, secret = destination.sealed(
                name,
                text,
                self._target(name, self.sealer),
                sealer=self.sealer,
                allow_hosts=self.allow_hosts,
                random_bytes=self.random_bytes,
                at=self.clock.now_ms(),
                by=by,
            )
        except (DestinationRefused, EndpointRefused, ValueError) as error:
            raise Problem(422, "destination", str(error)) from error
        await self.writer.write(topics.ALERT_RULES, f"destination|{name}", row)
        return row, secret

    async def remove_destination(self, name: str) -> None:
        """Raises Problem or Unavailable."""
        self._destination(name)
        users = sorted(rule.name for rule in self.tables.alerts.rules.values() if name in rule.tell)
        if users:
            detail = f"the rule {users[0]!r} tells it; change that first"
            raise Problem(409, "destination_in_use", detail)
        await self.writer.write(topics.ALERT_RULES, f"destination|{name}", None)

    async def try_destination(self, name: str, *, by: str) -> Tried:
        """Send a note that says it is a test; what became of it. Raises Problem."""
        self._destination(name)
        now = self.clock.now_ms()
        return await self.sender.send(
            Note(
                id=self.new_id(),
                rule="test",
                destination=name,
                title="Edgewake: a test",
                body=f"{by} tries whether this destination hears of alerts.",
                severity=Severity.INFO,
                made_at=now,
            )
        )

    def _target(self, name: str, sealer: Sealer) -> Endpoint | None:
        """What is kept under this name; None where nothing is, or it cannot be read any more."""
        row = self.tables.alerts.destinations.get(name)
        if row is None:
            return None
        try:
            return destination.opened(row, sealer)
        except (UnknownKey, Damaged):
            return None

    def _destination(self, name: str) -> Destination:
        found = self.tables.alerts.destinations.get(name)
        if found is None:
            raise Problem(
                404,
                "no_such_destination",
                f"unknown destination {name!r}; GET /v1/destinations lists them",
            )
        return found
