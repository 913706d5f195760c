"""The downlink: passes each kept message to its handler.

A handler is imported when its first message comes, so a small device pays only for what it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from edgewake.edge.downlink.config import DownlinkConfig
from edgewake.edge.downlink.inbox import Done, Inbox
from edgewake.edge.downlink.kept import Kept
from edgewake.protocol.downlink.downlink import REPLIES, Answer, AnswerState, DownKind
from edgewake.protocol.errors import Rejected
from edgewake.protocol.topics import of_thing

if TYPE_CHECKING:
    from edgewake.protocol.downlink.down_message import AnyMessage, Settings


class TriesSettings(Protocol):
    """Takes settings on trial."""

    def check(self, settings: Settings) -> Answer | None:
        """An answer where they are not to be tried."""

    async def apply(self, settings: Settings) -> Answer | None:
        """Try them; an answer where they cannot be."""


class Downlink:
    """Does what is in the inbox, one after another."""

    def __init__(
        self, config: DownlinkConfig, inbox: Inbox, trial: TriesSettings | None = None
    ) -> None:
        """Without a trial no settings are taken."""
        self._config = config
        self._trial = trial
        self.inbox = inbox

    async def run(self) -> None:
        """Until cancelled. Raises LogClosedError, sqlite3.Error."""
        await self.inbox.run(self._check, self._do)

    def counts(self) -> Mapping[str, int]:
        """For the status: messages since the start, by what became of them."""
        return dict(self.inbox.counts)

    def _check(self, kept: Kept, was_begun: bool) -> Answer | None:
        """An answer where it is not to be begun."""
        from edgewake.protocol.downlink.down_message import Command, Reply

        try:
            message = _read(kept)
        except Rejected as error:
            # Kept by an agent of another version, before an update or a rollback.
            return _answer(kept, AnswerState.REFUSED, str(error))
        if not was_begun and kept.is_over(self.inbox.now()):
            return _answer(
                kept, AnswerState.EXPIRED, f"its {kept.expires_s} s were over before it was begun"
            )
        if isinstance(message, Command):
            from edgewake.edge.downlink import commands

            return commands.refusal(message, self._config.command, was_begun=was_begun)
        if isinstance(message, Reply):
            return (
                None
                if self._config.requests
                else _answer(kept, AnswerState.REFUSED, "this device asks for nothing")
            )
        if self._trial is None or not self._config.settings:
            return _answer(kept, AnswerState.REFUSED, "this device takes no settings from afar")
        return self._trial.check(message)

    async def _do(self, kept: Kept) -> Done | None:
        from edgewake.protocol.downlink.down_message import Command, Reply

        message = _read(kept)
        if isinstance(message, Command):
            from edgewake.edge.downlink import commands

            return Done(await commands.run(message, self._config.command[message.name]))
        if isinstance(message, Reply):
            reading = self.inbox.now().wall_ms, message.fields()
            stream = of_thing(REPLIES, message.thing) if message.thing else REPLIES
            return Done(_answer(kept, AnswerState.DONE, ""), {stream: [reading]})
        assert self._trial is not None
        answer = await self._trial.apply(message)
        return None if answer is None else Done(answer)


def _read(kept: Kept) -> AnyMessage:
    from edgewake.protocol.downlink.down_message import decode

    return decode(kept.kind, kept.body.encode())


def _answer(kept: Kept, state: AnswerState, detail: str) -> Answer:
    return Answer(id=kept.id, kind=DownKind(kept.kind), state=state, detail=detail)
