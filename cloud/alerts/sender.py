"""Sends a note to its destination: webhooks directly, all others by Apprise in a child process.

Every connection of that process is checked (apprise_child.py).
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

import orjson

from edgewake.cloud.alerts.destination import WEBHOOK, opened
from edgewake.cloud.alerts.judge import Tried
from edgewake.cloud.alerts.places import Places
from edgewake.cloud.calls import sealing, webhook
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.alert import Destination, Note

log = logging.getLogger("edgewake.alerts")

TYPE: Final = "edgewake.alert"
CHILD_S: Final = 45.0
"""For a process that sends: it starts, looks names up, says what it has to say and hears the
answer. Below telling.ATTEMPT_MS."""
ERROR_CHARS_MAX: Final = 300
"""Characters of what went wrong."""
SECRET_CHARS_MIN: Final = 6
"""Shorter words of an address are not keys, and may be words of the sentence."""
_CHILD: Final = (sys.executable, "-m", "edgewake.cloud.alerts.apprise_child")


class Sender:
    """Sends notes to destinations."""

    def __init__(
        self,
        destinations: Callable[[], Mapping[str, Destination]],
        sealer: sealing.Sealer | None,
        caller: webhook.Caller,
        allow_hosts: tuple[str, ...],
        clock: Clock,
    ) -> None:
        self._destinations, self._sealer = destinations, sealer
        self._caller, self._allow_hosts = caller, allow_hosts
        self._places = Places(clock)

    async def send(self, note: Note) -> Tried:
        """One attempt; never raises for what the destination does."""
        destinations = self._destinations()
        self._places.forget_others(destinations)
        destination = destinations.get(note.destination)
        if destination is None:
            return Tried(note.id, "there is no such destination any more", is_final=True)
        try:
            target = self._open(destination)
        except (sealing.UnknownKey, sealing.Damaged) as error:
            return Tried(note.id, str(error)[:ERROR_CHARS_MAX])
        if target is None:
            return Tried(note.id, "this server has no seal_key_file, so it cannot read addresses")
        if destination.kind == WEBHOOK:
            return await self._call(target, note)
        async with self._places.of(note.destination):
            return await self._apprise(target, note)

    def _open(self, destination: Destination) -> sealing.Endpoint | None:
        """Raises UnknownKey or Damaged."""
        return None if self._sealer is None else opened(destination, self._sealer)

    async def _call(self, target: sealing.Endpoint, note: Note) -> Tried:
        signed = webhook.Signed(target.secret, note.id, body_of(note), target.headers)
        match await self._caller.call(target.url, signed):
            case webhook.Taken():
                return Tried(note.id, None)
            case webhook.Gone(why):
                return Tried(note.id, why, is_final=True)
            case webhook.Failed(why):
                return Tried(note.id, why[:ERROR_CHARS_MAX])
        raise AssertionError

    async def _apprise(self, target: sealing.Endpoint, note: Note) -> Tried:
        asked = {
            "address": target.url,
            "title": note.title,
            "body": f"{note.body}\n\n{note.id}",
            "severity": note.severity.value,
            "allow_hosts": self._allow_hosts,
        }
        child = await asyncio.create_subprocess_exec(
            *_CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(CHILD_S):
                answer, _ = await child.communicate(orjson.dumps(asked))
        except TimeoutError:
            return Tried(note.id, f"not sent within {CHILD_S:g} s")
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode == 0:
            return Tried(note.id, None)
        why = without_secrets(answer.decode("utf-8", "replace").strip(), target.url)
        why = why[-ERROR_CHARS_MAX:]
        return Tried(note.id, why or f"the process that sends ended with {child.returncode}")


def without_secrets(text: str, address: str) -> str:
    """What went wrong, without the words of an address that may be a key: all but its host."""
    host = urlsplit(address).hostname or ""
    for word in re.split(r"[/:@?&=,]+", unquote(address)):
        if len(word) >= SECRET_CHARS_MIN and word.lower() != host:
            text = text.replace(word, "…")
    return text


def body_of(note: Note) -> str:
    """What a webhook is sent; of repeats each byte is the same, and so is `webhook-id`."""
    at = datetime.fromtimestamp(note.made_at / 1000, UTC).isoformat(timespec="milliseconds")
    facts = {
        "type": TYPE,
        "timestamp": at,
        "id": note.id,
        "rule": note.rule,
        "severity": note.severity.value,
        "title": note.title,
        "body": note.body,
        "firing": note.firing,
        "resolved": note.resolved,
        "more": note.more,
        "field": note.field,
        "unit": note.unit,
        "values": note.values,
    }
    return orjson.dumps(facts).decode()
