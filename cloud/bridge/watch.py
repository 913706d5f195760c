"""Beats for this bridge, hears the beats of the others, and adopts the session of one that is gone.

The shell around `presence`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import mqtt5

from edgewake.cloud.bridge.admission.register import Register, Standing
from edgewake.cloud.bridge.mqtt.adoption import Adoption, Ended
from edgewake.cloud.bridge.mqtt.handover import Handover
from edgewake.cloud.bridge.mqtt.mqtt_source import MqttSource
from edgewake.cloud.bridge.presence import BEAT_S, Beat, BridgePresence
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError

log = logging.getLogger("edgewake.bridge.watch")


def last_will(installation: str, bridge: str) -> mqtt5.Will:
    """What the broker publishes for a bridge whose connection breaks."""
    return mqtt5.Will(
        topics.bridge(installation, bridge), payload=Beat(bridge, (bridge,), is_last=True).encode()
    )


class Watch:
    """Watches the other bridges, and adopts one session at a time.

    So a bridge holds at most its own window and one more.
    """

    def __init__(
        self,
        name: str,
        *,
        installation: str,
        source: MqttSource,
        register: Register,
        handover: Handover,
        new_adoption: Callable[[str, Callable[[], bool]], Adoption],
        clock: Clock,
    ) -> None:
        self._name = name
        self._topic = topics.bridge(installation, name)
        self._source = source
        self._register = register
        self._new_adoption = new_adoption
        self._handover = handover
        self._clock = clock
        self._presence = BridgePresence(name)
        self._connections = 0
        """The number of our own connections to the broker when it was last looked at."""
        self._adopting: str | None = None
        self.adoption: Adoption | None = None
        self.adopted = 0
        """Sessions of others that were emptied and ended."""
        self.adopted_messages = 0

    def on_beat(self, payload: bytes) -> None:
        """A publish on a topic of the bridges."""
        if (beat := Beat.decode(payload)) is not None:
            self._presence.heard(beat)

    @property
    def others(self) -> int:
        """The number of other bridges that live."""
        return len(self._presence.others())

    @property
    def is_first(self) -> bool:
        """Are we the one of the bridges that does what only one may do?"""
        return self._source.subscribed.is_set() and self._presence.is_first

    async def run(self) -> None:
        """Beat and look after the others, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                if self._connections != self._source.connections:
                    self._connections = self._source.connections
                    self._presence.connected()
                self._beat()
                if self._adopting is not None and self.adoption is not None:
                    self._handover.repeat_claim(self._adopting)
                if (
                    self._adopting is None
                    and (orphan := self._presence.orphan(self._register.sessions)) is not None
                ):
                    self._adopting = orphan
                    self._beat()  # at once, so that nobody else tries
                    tasks.create_task(self._adopt(orphan), name=f"adopt {orphan}")
                await self._clock.sleep(BEAT_S)

    def _beat(self, *, is_last: bool = False) -> None:
        sessions = (self._name,) if self._adopting is None else (self._name, self._adopting)
        payload = Beat(self._name, sessions, is_last=is_last).encode()
        self._source.write(mqtt5.PublishPacket(self._topic, payload).write())

    async def _adopt(self, session: str) -> None:
        log.warning(
            "bridge %s is gone: adopting its session",
            session,
            extra={"event": "bridge.adopting", "session": session},
        )
        try:
            standing = await self._handover.claim(session)
            try:
                await self._empty(session, standing)
            finally:
                self._handover.release(session)
        except (OSError, TimeoutError, RemoteError) as error:
            self._presence.postpone(session)
            text = str(error) or type(error).__name__
            log.warning(
                "bridge %s: not adopted: %s",
                session,
                text,
                extra={"event": "bridge.not_adopted", "session": session},
            )
        finally:
            self._adopting = self.adoption = None

    async def _empty(self, session: str, standing: Standing | None) -> None:
        """`standing`: the row of its owner, as it was before."""
        if session in self._presence.others():
            raise RemoteError("it is served again")
        adoption = self.adoption = self._new_adoption(
            session, lambda: self._handover.is_wanted_back(session, standing)
        )
        ended = await adoption.run()
        self.adopted_messages += adoption.received
        self._on_ended(session, ended, adoption.received)

    def _on_ended(self, session: str, ended: Ended, messages: int) -> None:
        if ended is Ended.HANDED_BACK:
            self._presence.postpone(session)
            log.info(
                "bridge %s is back: it gets its session, of which we took %d messages",
                session,
                messages,
                extra={"event": "bridge.handed_back", "session": session, "messages": messages},
            )
            return
        self._presence.forget(session)
        self.adopted += ended is Ended.EMPTIED
        self._handover.ended(session)
        log.info(
            "adopted bridge %s: %d messages were waiting",
            session,
            messages,
            extra={"event": "bridge.adopted", "session": session, "messages": messages},
        )

    def farewell(self) -> None:
        """We end in order: another bridge may adopt at once what is dealt to us from now on."""
        self._beat(is_last=True)
