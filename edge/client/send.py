"""One plain reading over MQTT 5, and its acknowledgement: what `edgewake send` does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgewake.protocol import topics
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.frames.ack import Ack, Later, decode_answer


class Address(NamedTuple):
    """The address of an MQTT broker."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`; raises ConfigError."""
        host, _, port = text.removeprefix("mqtt://").rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise ConfigError(
                f"MQTT address {text[:100]!r}: expected host:port, e.g. 127.0.0.1:8710"
            )
        return cls(host.strip("[]"), int(port))


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading to send."""

    device: str
    stream: str
    payload: bytes


class _Client(aiomqtt.Client):
    """Reads the broker's answers: aiomqtt takes any PUBACK and any SUBACK for a success.

    See MQTT 5, sections 3.4.2.1 and 3.9.3.
    """

    refused: str | None = None
    """Why the broker did not take what was published."""

    def _on_publish(
        self, client: Any, userdata: Any, mid: int, reason_code: ReasonCode, properties: Any
    ) -> None:
        if reason_code.is_failure:
            self.refused = str(reason_code)
        super()._on_publish(client, userdata, mid, reason_code, properties)

    async def listen(self, topic: str) -> None:
        """Subscribe with QoS 0. Raises Unavailable."""
        for granted in await self.subscribe(topic, qos=0):
            if isinstance(granted, ReasonCode) and granted.is_failure:
                raise Unavailable(
                    f"the MQTT broker refuses the subscription to {topic}, where the "
                    f"acknowledgement comes: {granted}"
                )


async def send(
    address: Address, reading: Reading, *, correlation: bytes, timeout_s: float, wait_for_ack: bool
) -> Ack | Later | None:
    """Publish at QoS 1; with `wait_for_ack` the cloud's answer, else None once the broker has it.

    Raises Unavailable.
    """
    try:
        async with (
            asyncio.timeout(timeout_s),
            _Client(
                address.host,
                address.port,
                identifier=f"send-{correlation.hex()}",
                protocol=aiomqtt.ProtocolVersion.V5,
                timeout=timeout_s,
            ) as client,
        ):
            if wait_for_ack:
                await client.listen(topics.ack(reading.device))
            properties = _asking(reading.device, correlation) if wait_for_ack else None
            await client.publish(
                topics.up(reading.device, reading.stream),
                reading.payload,
                qos=1,
                properties=properties,
            )
            if client.refused is not None:
                raise Unavailable(
                    f"the MQTT broker at {address.host}:{address.port} did not take it: "
                    f"{client.refused}"
                )
            return await _answer(client, correlation) if wait_for_ack else None
    except TimeoutError as error:
        what = (
            "no acknowledgement came: is a bridge running?"
            if wait_for_ack
            else "the broker did not answer"
        )
        raise Unavailable(f"{address.host}:{address.port}: {what} ({timeout_s:g} s)") from error
    except aiomqtt.MqttError as error:
        raise Unavailable(f"the MQTT broker at {address.host}:{address.port}: {error}") from error


def _asking(device: str, correlation: bytes) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ResponseTopic = topics.ack(device)
    properties.CorrelationData = correlation
    return properties


async def _answer(client: aiomqtt.Client, correlation: bytes) -> Ack | Later:
    async for message in client.messages:
        if getattr(message.properties, "CorrelationData", None) == correlation and isinstance(
            message.payload, bytes
        ):
            return decode_answer(message.payload)
    raise Unavailable("the MQTT broker hung up")
