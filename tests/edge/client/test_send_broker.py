"""`edgewake send` hears what the broker answers, not only that it does: a reading that was refused
was not sent.
"""

from __future__ import annotations

import mqtt5
import pytest

from edgewake.edge.client.send import Address, Reading, send
from edgewake.protocol.errors import RemoteError, Unavailable
from edgewake.protocol.frames.ack import Ack, AckToken, Later, LaterReason
from tests.edge.scripted_broker import CONNECT, Broker, by
from tests.edge.sources.cage import served
from tests.services import PATIENCE_S

READING = Reading("shed", "weather", b'{"temperature": 21.5}')
ASKED = b"\x01\x02"
"""Correlation data."""


def publish(broker: Broker) -> mqtt5.PublishPacket:
    (found,) = [each for each in broker.heard if isinstance(each, mqtt5.PublishPacket)]
    return found


async def sent(
    *,
    ack: bool,
    connack: object = None,
    suback: int = 0,
    puback: int = 0,
    answers: tuple[tuple[bytes | None, bytes], ...] = (),
) -> tuple[Ack | Later | None, Broker]:
    """Send to a broker that answers so."""
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.hears(CONNECT)
        broker.send(connack or mqtt5.ConnAckPacket())
        if ack:
            await broker.hears(mqtt5.SubscribePacket)
            (subscribe,) = [
                each for each in broker.heard if isinstance(each, mqtt5.SubscribePacket)
            ]
            broker.send(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode(suback)]))
        await broker.hears(mqtt5.PublishPacket)
        packet_id = publish(broker).packet_id
        assert packet_id is not None
        broker.send(mqtt5.PubAckPacket(packet_id, reason_code=mqtt5.PubAckReasonCode(puback)))
        for correlation, payload in answers:
            broker.send(
                mqtt5.PublishPacket("ew/v1/shed/ack", payload, correlation_data=correlation)
            )

    async with served(by(script, brokers)) as port:
        answer = await send(
            Address("127.0.0.1", port),
            READING,
            correlation=ASKED,
            timeout_s=PATIENCE_S,
            wait_for_ack=ack,
        )
    return answer, brokers[0]


async def test_a_reading_is_published_once_with_quality_1_and_no_more_is_asked() -> None:
    answer, broker = await sent(ack=False)
    packet = publish(broker)
    assert answer is None
    assert (packet.topic, packet.payload, packet.qos) == (
        "ew/v1/shed/up/weather",
        READING.payload,
        mqtt5.QoS.AT_LEAST_ONCE,
    )
    assert (packet.response_topic, packet.correlation_data) == (None, None)


@pytest.mark.parametrize("ack", [False, True], ids=["without an acknowledgement", "with one"])
@pytest.mark.parametrize(
    ("reason", "says"),
    [(0x80, "Unspecified error"), (0x83, "Implementation"), (0x87, "Not authorized"),
        (0x90, "Topic name invalid"),
     (0x97, "Quota exceeded"), (0x99, "Payload format invalid")],
)  # fmt: skip
async def test_a_broker_that_did_not_take_the_reading_is_believed(
    reason: int, says: str, ack: bool
) -> None:
    """A device without the right to publish was told that all was well."""
    with pytest.raises(Unavailable, match=f"did not take it: {says}"):
        await sent(ack=ack, puback=reason)


@pytest.mark.parametrize("reason", [0x00, 0x10])
async def test_a_broker_that_took_it_is_believed_too_whoever_listens(reason: int) -> None:
    assert (await sent(ack=False, puback=reason))[0] is None


async def test_a_broker_that_does_not_let_the_acknowledgement_through_is_named_at_once() -> None:
    with pytest.raises(Unavailable, match="refuses the subscription to ew/v1/shed/ack"):
        await sent(ack=True, suback=0x87)


async def test_a_broker_that_does_not_let_us_in_is_named() -> None:
    with pytest.raises(Unavailable, match="the MQTT broker at 127"):
        await sent(
            ack=False,
            connack=mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED),
        )


KEPT = Ack(AckToken(3, 17))
LATER = Later(LaterReason.QUOTA, 3000, "full")


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (((ASKED, KEPT.encode()),), KEPT),
        (((ASKED, LATER.encode()),), LATER),
        (
            (
                (b"somebody", LATER.encode()),
                (None, LATER.encode()),
                (ASKED + b"x", LATER.encode()),
                (ASKED, KEPT.encode()),
            ),
            KEPT,
        ),
        (((ASKED, KEPT.encode()), (ASKED, LATER.encode())), KEPT),
    ],
    ids=["kept", "later", "after those of others", "the first of two"],
)
async def test_the_acknowledgement_is_the_one_that_was_asked_for(
    answers: tuple[tuple[bytes | None, bytes], ...], answer: Ack | Later
) -> None:
    got, broker = await sent(ack=True, answers=answers)
    assert got == answer
    assert (publish(broker).response_topic, publish(broker).correlation_data) == (
        "ew/v1/shed/ack",
        ASKED,
    )


async def test_an_acknowledgement_that_cannot_be_read_is_the_clouds_fault() -> None:
    with pytest.raises(RemoteError):
        await sent(ack=True, answers=((ASKED, b"nonsense"),))
