"""The device's presence: it is there, it leaves, or (by the broker's will) it vanished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final

import mqtt5
import orjson

from edgewake.edge.mqtt_link import MqttLink
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.device import DeviceState, DeviceStatus, FieldsSaid

FIELDS_SAID_TIMES: Final = 6
"""How many statuses of a connection, and after a change, say what is known of fields: a minute's.
The bridge knows a field by its first reading, which may come after the first of them."""


class Presence:
    """The messages on the device's status topic."""

    def __init__(
        self,
        device: str,
        clock: Clock,
        status: Callable[[], DeviceStatus],
        *,
        interval_s: float,
        fields: Callable[[], FieldsSaid] = dict,
    ) -> None:
        """`fields`: what is known of fields, which the first statuses of a connection say."""
        self._device = device
        self._topic = topics.status(device)
        self._clock = clock
        self._status = status
        self._interval_s = interval_s
        self._fields = fields
        self._fields_said: FieldsSaid = {}
        self._fields_left = 0
        """How often what is known of fields is still to be said."""
        self._connected_at = 0
        self.will_qos = mqtt5.QoS.AT_LEAST_ONCE
        """Less where the broker allows no more."""
        self.due_s = 0.0
        """When the next one is to be said, monotonic."""

    def will(self) -> mqtt5.Will:
        """For a connection that begins now."""
        self._connected_at = self._clock.now_ms()
        self._fields_left = FIELDS_SAID_TIMES
        self.due_s = 0.0
        # What is known of it stays known while it is gone; what waits on it will have changed.
        last = replace(
            self._status(),
            state=DeviceState.OFFLINE,
            sent_at=None,
            connected_at=self._connected_at,
            backlog_readings=None,
            backlog_bytes=None,
            oldest_unacked_s=None,
            waits=None,
        )
        return mqtt5.Will(self._topic, payload=_json(last), qos=self.will_qos)

    def say(self, link: MqttLink, now_s: float, *, has_room: bool, confirmed: bool) -> None:
        """If it is due. A link that is full has better things to carry: then it is left out."""
        if now_s < self.due_s:
            return
        self.due_s = now_s + self._interval_s
        if has_room:
            status = replace(
                self._status(), connected_at=self._connected_at, fields=self._fields_due()
            )
            link.publish(self._topic, _json(status), confirmed=confirmed)

    def _fields_due(self) -> FieldsSaid | None:
        """What is known of fields, where it is still to be said."""
        known = self._fields()
        if known != self._fields_said:
            self._fields_said, self._fields_left = known, FIELDS_SAID_TIMES
        if not known or not self._fields_left:
            return None
        self._fields_left -= 1
        return known

    async def goodbye(self, link: MqttLink) -> None:
        """Say it, and close."""
        offline = replace(
            self._status(),
            state=DeviceState.OFFLINE,
            connected_at=self._connected_at,
            waits=None,
        )
        link.publish(self._topic, _json(offline), confirmed=False)
        await link.close()


def _json(status: DeviceStatus) -> bytes:
    return orjson.dumps(
        {name: value for name, value in asdict(status).items() if value is not None}
    )
