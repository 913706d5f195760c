"""One plain reading over MQTT 5, and its acknowledgement: what `edgewake send` does, with a socket that blocks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import mqtt5

from edgewake.protocol import topics
from edgewake.protocol.ack import Ack, Later, decode_answer
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.mqtt import PacketReader

READ_BYTES: Final = 65_536


class Address(NamedTuple):
    """Of an MQTT broker."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`; raises ConfigError."""
        host, _, port = text.removeprefix("mqtt://").rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise ConfigError(f"MQTT address {text[:100]!r}: expected host:port, e.g. 127.0.0.1:8710")
        return cls(host.strip("[]"), int(port))


@dataclass(frozen=True, slots=True)
class Reading:
    """What is sent."""

    device: str
    stream: str
    payload: bytes


def send(
    address: Address, reading: Reading, *, correlation: bytes, clock: Clock, timeout_s: float, wait_for_ack: bool
) -> Ack | Later | None:
    """Publish at QoS 1; with `wait_for_ack` the cloud's answer, else None once the broker has it. Raises Unavailable."""
    deadline_s = clock.monotonic_s() + timeout_s
    try:
        with socket.create_connection(address, timeout_s) as connection:
            reader = PacketReader()

            def wait(wanted: Callable[[object], object]) -> object:
                while True:
                    left_s = deadline_s - clock.monotonic_s()
                    if left_s <= 0:
                        raise TimeoutError
                    connection.settimeout(left_s)
                    data = connection.recv(READ_BYTES)
                    if not data:
                        raise Unavailable(f"the MQTT broker at {address.host}:{address.port} hung up")
                    for packet in reader.feed(data):
                        if (found := wanted(packet)) is not None:
                            return found

            connection.sendall(mqtt5.ConnectPacket(f"send-{correlation.hex()}", clean_start=True).write())
            answer = wait(lambda packet: packet if isinstance(packet, mqtt5.ConnAckPacket) else None)
            if answer.reason_code.value >= 0x80:  # type: ignore[attr-defined]
                raise Unavailable(f"the MQTT broker refused the connection: {answer.reason_code.name}")  # type: ignore[attr-defined]
            if wait_for_ack:
                wanted = mqtt5.TopicFilter(topics.ack(reading.device), max_qos=mqtt5.QoS.AT_MOST_ONCE)
                connection.sendall(mqtt5.SubscribePacket(1, [wanted]).write())
                wait(lambda packet: packet if isinstance(packet, mqtt5.SubAckPacket) else None)
            connection.sendall(_publish(reading, correlation, wait_for_ack=wait_for_ack).write())
            if wait_for_ack:
                return wait(lambda packet: _answer(packet, correlation))  # type: ignore[return-value]
            wait(lambda packet: packet if isinstance(packet, mqtt5.PubAckPacket) else None)
            return None
    except TimeoutError as error:
        what = "no acknowledgement came: is a bridge running?" if wait_for_ack else "the broker did not answer"
        raise Unavailable(f"{address.host}:{address.port}: {what} ({timeout_s:g} s)") from error
    except OSError as error:
        raise Unavailable(f"the MQTT broker at {address.host}:{address.port}: {error.strerror or error}") from error


def _publish(reading: Reading, correlation: bytes, *, wait_for_ack: bool) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket(
        topics.up(reading.device, reading.stream),
        reading.payload,
        qos=mqtt5.QoS.AT_LEAST_ONCE,
        packet_id=2,
        response_topic=topics.ack(reading.device) if wait_for_ack else None,
        correlation_data=correlation if wait_for_ack else None,
    )


def _answer(packet: object, correlation: bytes) -> Ack | Later | None:
    if isinstance(packet, mqtt5.PublishPacket) and packet.correlation_data == correlation:
        return decode_answer(packet.payload)
    return None
