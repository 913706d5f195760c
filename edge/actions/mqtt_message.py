"""Publishes an alert on a broker.

Each alert has a connection of its own: alerts are rare, and a connection that is kept open may be
dead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from edgewake.edge.actions.action import Act, ActionFailed
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import MqttActionConfig
from edgewake.edge.mqtt_link import MqttLink, connect
from edgewake.protocol.broker import tls_of

KEEPALIVE_S: Final = 60
"""Longer than an action may need on a link that works."""
REFUSED_FROM: Final = 0x80
"""Reason codes from here on say that the broker did not take it (MQTT 5, section 2.4)."""


class MqttAction:
    """Publishes an alert to a broker."""

    def __init__(self, config: MqttActionConfig, device: str) -> None:
        self._config = config
        self._client_id = f"{device}-action-{config.name}"

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Act]:
        confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_puback(_packet_id: int, code: int) -> None:
            if not confirmed.done():
                confirmed.set_result(code)

        broker = self._config.broker
        link = await connect(
            broker,
            tls_of(broker),
            lambda: MqttLink(on_message=lambda _packet: False, on_puback=on_puback),
        )

        async def publish(alert: Alert) -> None:
            link.publish(
                self._config.topic, alert.body(), confirmed=link.confirms,
                retain=self._config.retain, content_type="application/json",
                user_properties=[("id", alert.id)],
            )  # fmt: skip
            if not link.confirms:
                return
            either: set[asyncio.Future[Any]] = {confirmed, link.lost}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not confirmed.done():
                raise ActionFailed(f"not confirmed: {link.lost.result()}")
            if confirmed.result() >= REFUSED_FROM:
                raise ActionFailed(f"the broker refused it: 0x{confirmed.result():02x}")

        try:
            await link.open(
                self._client_id, broker, keepalive_s=KEEPALIVE_S, asked_s=KEEPALIVE_S, will=None
            )
            yield publish
        except BaseException:
            link.cut("given up")
            raise
        await link.close()
