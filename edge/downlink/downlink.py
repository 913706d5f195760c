"""The downlink: each kept message to who does it."""

from __future__ import annotations

from collections.abc import Mapping

from edgewake.edge.downlink import commands
from edgewake.edge.downlink.config import DownlinkConfig
from edgewake.edge.downlink.inbox import Inbox
from edgewake.edge.downlink.kept import Kept
from edgewake.protocol import downlink
from edgewake.protocol.downlink import Answer, AnswerState, Command, DownKind, Settings
from edgewake.protocol.errors import Rejected


class Downlink:
    """Does what is in the inbox, one after another."""

    def __init__(self, config: DownlinkConfig, inbox: Inbox) -> None:
        self._config = config
        self.inbox = inbox

    async def run(self) -> None:
        """Until cancelled. Raises LogClosedError, sqlite3.Error."""
        await self.inbox.run(self._check, self._do)

    def counts(self) -> Mapping[str, int]:
        """For the status: messages since the start, by what became of them."""
        return dict(self.inbox.counts)

    def _check(self, kept: Kept, was_begun: bool) -> Answer | None:
        """An answer where it is not to be begun."""
        try:
            message = _read(kept)
        except Rejected as error:  # an earlier version of the agent kept it
            return _answer(kept, AnswerState.REFUSED, str(error))
        if not was_begun and kept.is_over(self.inbox.now()):
            return _answer(kept, AnswerState.EXPIRED, f"its {kept.expires_s} s were over before it was begun")
        if isinstance(message, Command):
            return commands.refusal(message, self._config.command, was_begun=was_begun)
        return self._check_settings(message)

    def _check_settings(self, settings: Settings) -> Answer | None:
        return Answer(id=settings.id, kind=DownKind.SETTINGS, state=AnswerState.REFUSED, detail="this device takes no settings from afar")

    async def _do(self, kept: Kept, was_begun: bool) -> Answer | None:  # noqa: ARG002
        message = _read(kept)
        assert isinstance(message, Command)
        return await commands.run(message, self._config.command[message.name])


def _read(kept: Kept) -> Command | Settings:
    return downlink.decode(kept.kind, kept.body.encode())


def _answer(kept: Kept, state: AnswerState, detail: str) -> Answer:
    return Answer(id=kept.id, kind=DownKind(kept.kind), state=state, detail=detail)
