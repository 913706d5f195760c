"""The bridge: MQTT in, Kafka out, and an answer to the device when Kafka has its frame.

It is stateless; any number run side by side, and when one is gone another adopts its session
(`watch`).

    publish ─ admit ─┬─ ew.up ────┐
                     ├─ ew.dead ──┼─ Kafka's confirmation ─ PUBACK to the broker + Ack to the device
                     └─ ew.devices┘

Kafka away: nothing is confirmed, so nothing is acknowledged; at the in-flight bound the broker
stops, and what is in flight is sent when Kafka is back. Sequencer away for so long that Kafka would
delete what waits (`backlog`): nothing is read from the broker. Nothing is ever dropped here: what
is refused is a dead letter. An error that Kafka's client cannot recover from ends the process:
nothing was acknowledged, so the next one gets it all again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import mqtt5
from confluent_kafka import Producer

from edgewake.cloud.bridge.admission import batches
from edgewake.cloud.bridge.admission.admit import parse_up
from edgewake.cloud.bridge.admission.allowance import (
    ASK_S,
    BY_MAPS,
    MEASURED_BYTES,
    REFUSED_S,
    Account,
    Allowance,
)
from edgewake.cloud.bridge.admission.catalogue import (
    AwaitsCatalogueError,
    Catalogue,
    NotNow,
    OtherTypesError,
    over_share,
)
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.cloud.bridge.admission.expand_compact import expand_compact
from edgewake.cloud.bridge.admission.mapped import Mapper, Part, is_mapped
from edgewake.cloud.bridge.admission.payers import Payers, may_be_heard
from edgewake.cloud.bridge.admission.records import (
    KafkaRecord,
    catalogue_row,
    is_answerable,
    is_status,
    odd_fields,
    too_large,
)
from edgewake.cloud.bridge.admission.register import Register
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.expense import paid_record, size_of
from edgewake.cloud.bridge.feeds import Feeds
from edgewake.cloud.bridge.flow.attribute_rows import AttributeRows
from edgewake.cloud.bridge.flow.reading_gate import BEHIND, ReadingGate
from edgewake.cloud.bridge.kafka_writer import KafkaWriter
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger, Awaited, Delivery, InFlight
from edgewake.cloud.bridge.mqtt.adoption import Adoption
from edgewake.cloud.bridge.mqtt.answers import Answers, pubacks
from edgewake.cloud.bridge.mqtt.handover import Handover
from edgewake.cloud.bridge.mqtt.mqtt_source import MqttSource
from edgewake.cloud.bridge.mqtt.parked import Parked, ParkedMessage
from edgewake.cloud.bridge.mqtt.subscriptions import Subscriptions, client_id
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.refusals import Refusals
from edgewake.cloud.bridge.status_rows import StatusRows
from edgewake.cloud.bridge.traces import BridgeTraces
from edgewake.cloud.bridge.watch import Watch, last_will
from edgewake.cloud.health import Health
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.downlink import FEED
from edgewake.protocol.downlink.feed import FeedChunk
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.contents import has_items
from edgewake.protocol.maps.rule import Maps
from edgewake.protocol.mqtt import Publish, Unreadable

log = logging.getLogger("edgewake.bridge")

PUMP_S: Final = 0.001
"""Seconds between polls for Kafka's confirmations while some are awaited: what this adds to a
latency."""
IDLE_S: Final = 0.1
"""The poll interval while nothing is in flight."""
HEALTH_S: Final = 1.0
"""Seconds between two checks of what keeps the bridge from working."""
CHUNK_LIFE_S: Final = 60
"""Seconds that the broker keeps a chunk of a feed for its device, which asks again after fewer."""
DRAIN_S: Final = 3.0
"""Seconds that a stopping bridge waits for confirmations; the rest comes again from the broker."""

_OUTCOMES: Final = {topics.UP: "acked", topics.DEAD: "dead", topics.DEVICES: "status"}


class Bridge:
    """Receives publishes, gives records to Kafka, and answers when Kafka has confirmed them.

    Runs in one event loop.
    """

    def __init__(
        self,
        config: BridgeConfig,
        *,
        subscriptions: Subscriptions,
        producer: Producer,
        alone: Callable[[], Producer],
        catalogue: Catalogue,
        register: Register,
        outbox: Outbox,
        clock: Clock,
        rng: random.Random,
        mapper: Mapper | None = None,
        traces: BridgeTraces | None = None,
    ) -> None:
        """`mapper`: of messages on other topics than ours; None: they are refused."""
        self._traces = traces
        self._config = config
        self._subscriptions = subscriptions
        self._mapper = mapper
        self._outbox = outbox
        self._catalogue = catalogue
        if mapper is not None:
            catalogue.foreseen = mapper.streams
        self._compiled = CompiledStreams(catalogue)
        self._clock = clock
        self.health = Health(clock.monotonic_s)
        self.metrics = BridgeMetrics()
        # The window of our own session and the one of a session that we adopt; QoS 0 and bytes,
        # which the broker does not count, may stop the reading before.
        self._in_flight = InFlight(
            messages_max=2 * config.inflight_messages_max, bytes_max=config.inflight_bytes_max
        )
        self._writer = KafkaWriter(
            producer, alone=alone, on_stored=self._on_stored, on_too_large=self._on_too_large
        )
        self._answers = Answers()
        self._parked: Parked[Publish] = Parked()
        self._statuses = StatusRows()
        self._rows = AttributeRows(self._writer, clock.now_ms)
        self._gate = ReadingGate(self._in_flight, self._writer, self.metrics, self._set_reading)
        self._allowance = Allowance(config.device)
        self._payers = Payers(
            self._allowance, config.gateway, config.knows_devices, clock.monotonic_s()
        )
        self._refusals = self._made_refusals()
        self._seen_changes = 0
        self._confirmed_s = clock.monotonic_s()
        """Monotonic clock when Kafka confirmed something last, or nothing was in flight."""
        self._looked_s = 0.0
        self._polled_s = 0.0
        """Monotonic clock at the last poll for Kafka's confirmations."""
        self._work = asyncio.Event()
        self.handover = Handover(register, lambda row: self._writer.write(row, None), clock)
        self.source = self._made_source(rng)
        self.feeds = Feeds(config.feed, self._send_chunk, rng)
        self.watch = Watch(
            config.name,
            installation=config.kafka.installation,
            source=self.source,
            register=register,
            handover=self.handover,
            new_adoption=self._new_adoption,
            clock=clock,
        )

    def _made_refusals(self) -> Refusals:
        return Refusals(
            self._config.name,
            allowance=self._allowance,
            metrics=self.metrics,
            clock=self._clock,
            traces=self._traces,
            answer=self._answer_device,
            settle=self._note_part,
        )

    def _made_source(self, rng: random.Random) -> MqttSource:
        """Our session at the broker, which ends when it is another's turn."""
        config = self._config
        return MqttSource(
            config.mqtt,
            client_id=client_id(config.kafka.installation, config.name),
            subscriptions=self._subscriptions,
            will=last_will(config.kafka.installation, config.name),
            receive_max=config.inflight_messages_max,
            on_publish=self._on_publish,
            is_left_unread=lambda topic: self._payers.is_left_unread(
                topic, self._clock.monotonic_s()
            ),
            our_turn=self.handover.our_turn,
            backoff=Backoff(rng),
            clock=self._clock,
        )

    def _new_adoption(self, session: str, is_wanted_back: Callable[[], bool]) -> Adoption:
        adoption = Adoption(
            self._config.mqtt,
            client_id=client_id(self._config.kafka.installation, session),
            filters=self._subscriptions.all,
            receive_max=self._config.inflight_messages_max,
            on_publish=self._on_publish,
            is_wanted_back=is_wanted_back,
            clock=self._clock,
        )
        adoption.set_reading(not self._gate.is_paused)
        return adoption

    # In: from the broker to Kafka's client

    def _on_publish(self, ledger: AckLedger, packet: Publish) -> None:
        if packet.topic.startswith(topics.BRIDGE_PREFIX):
            self.watch.on_beat(packet.head if isinstance(packet, Unreadable) else packet.payload)
            return
        is_feed = packet.topic.endswith(topics.FEED_END)  # nearly none is, and all are looked at
        if is_feed and (device := topics.parse_feed(packet.topic)) is not None:
            self._on_feed(ledger, packet, device)
            return
        packet = expand_compact(packet)
        payload = packet.head if isinstance(packet, Unreadable) else packet.payload
        fingerprint, now_s = hash(payload), self._clock.monotonic_s()
        # After a reconnect the broker repeats what it got no PUBACK for. These readings are on
        # their way to Kafka already, so only the packet to answer is another one.
        if (known := ledger.readopt(packet.packet_id, fingerprint)) is not None:
            self.metrics.readopted += 1
            self._answer_device(known)
        elif self._mapper is not None and is_mapped(packet.topic):
            self._accept_mapped(self._mapper, ledger, packet, fingerprint)
        elif now_s < self._allowance.muted_until_s and self._is_only_counted(
            ledger, packet, fingerprint, now_s
        ):
            pass
        elif isinstance(packet, mqtt5.PublishPacket) and has_items(
            payload, packet.content_type, packet.user_properties
        ):
            self._accept_batch(ledger, packet, fingerprint)
        else:
            self._accept(ledger, packet, fingerprint, now_s)
        self._work.set()

    def _is_only_counted(
        self, ledger: AckLedger, packet: Publish, fingerprint: int, now_s: float
    ) -> bool:
        """Count a message of a device that was refused another one just now; True: that is all.

        Who waits for an answer hears `later` as long as it may, and sends again.
        """
        account = self._payers.of(packet.topic, now_s)
        if not account.is_muted(now_s):
            return False
        is_told = is_status(packet.topic) or is_answerable(packet)
        if is_told and may_be_heard(account, packet.topic):
            return False
        self._refusals.count(packet, RejectReason.QUOTA, account)
        if packet.packet_id is not None:
            delivery = Delivery(packet.packet_id, None, None, 0, now_s, fingerprint)
            ledger.add(delivery)
            delivery.is_left_out = True
        return True

    def _on_feed(self, ledger: AckLedger, packet: Publish, device: str) -> None:
        """Answer a device's question for others' readings.

        Nothing of it is kept here; with QoS 1 it gets its PUBACK all the same.
        """
        if packet.packet_id is not None:
            delivery = Delivery(
                packet.packet_id, None, None, 0, self._clock.monotonic_s(), hash(packet.topic)
            )
            ledger.add(delivery)
            delivery.is_left_out = True
        now_s = self._clock.monotonic_s()
        account = self._allowance.account(device, now_s)
        self._work.set()
        if account.is_muted(now_s):
            self.feeds.left_out += 1
        elif isinstance(packet, mqtt5.PublishPacket):
            wait_s = account.wait_s(now_s)
            if wait_s <= 0:
                account.pay(len(packet.payload), ASK_S)
                self.feeds.on_ask(device, packet.payload)
                return
            if account.may_be_told_later(now_s):
                self.feeds.put_off(device, packet.payload, wait_s)
            else:
                self.feeds.left_out += 1
            # A broker busy with a flood reads few packets of a bridge: others wait for theirs.
            self._allowance.mute(account, now_s)

    def _send_chunk(self, device: str, chunk: FeedChunk) -> None:
        """Send a chunk; one that the broker does not take now is lost, and asked for again."""
        payload = chunk.to_json()
        self.source.publish(topics.down(device, FEED), payload, expires_s=CHUNK_LIFE_S)

    def _accept(self, ledger: AckLedger, packet: Publish, fingerprint: int, now_s: float) -> None:
        received_at = self._clock.now_ms()
        delivery = Delivery(
            packet.packet_id, packet.response_topic, packet.correlation_data, size_of(packet),
            now_s, fingerprint
        )  # fmt: skip
        # Without a packet id (QoS 0) nobody waits for a PUBACK, and the broker repeats nothing.
        if delivery.packet_id is not None:
            ledger.add(delivery)
        self._admit_or_park(packet, delivery, received_at)
        self._gate.pause_where_full()

    def _admit_or_park(self, packet: Publish, delivery: Delivery, received_at: int) -> None:
        # What follows a parked message on its topic is parked, too: it would overtake it otherwise.
        if packet.topic in self._parked or not self._admitted(packet, delivery, received_at):
            self._parked.add(packet.topic, ParkedMessage(packet, delivery, received_at))
            self._in_flight.add(delivery.bytes)

    def _accept_mapped(
        self, mapper: Mapper, ledger: AckLedger, packet: Publish, fingerprint: int
    ) -> None:
        """Accept a foreign message; the broker is answered when all its readings have arrived."""
        received_at, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        whole = Delivery(packet.packet_id, None, None, 0, now_s, fingerprint)
        if whole.packet_id is not None:
            ledger.add(whole)
        if mapper.is_repeat(packet):
            self.metrics.mapped["ignored"] += 1
            whole.parts = []
            return
        account = self._payers.of_mapped(packet.topic, mapper.device_of(packet.topic), now_s)
        if now_s < self._allowance.muted_until_s and account.is_muted(now_s):
            self._refusals.count(packet, RejectReason.QUOTA, account)
            whole.is_left_out = True
            return
        size = size_of(packet)
        if (wait_s := account.wait_s(now_s)) > 0:
            parts = [Part(packet, over_share(account, wait_s).refusal)]
        else:
            began_s = time.thread_time() if size >= MEASURED_BYTES else None
            parts = mapper.parts(packet, received_at)
            if began_s is not None:
                account.pay(size, time.thread_time() - began_s)
            if not account.device:  # else each part pays
                account.pay_for(len(parts), size)
        self.metrics.mapped["ignored" if not parts else "mapped"] += 1
        named = self._payers.named(parts, None, now_s)
        # Where the topic names no device, each one that the payload names is asked.
        self._accept_parts(whole, named, account, received_at, are_let_in=bool(account.device))

    def take(
        self,
        parts: Sequence[Part],
        payer: str | None,
        on_settled: Callable[[], None],
        *,
        is_named: bool,
    ) -> Awaited:
        """Accept messages that came another way than by the broker, at the expense of `payer`.

        None: nobody has sent them, e.g. what the time brings. `is_named`: the payload names the
        devices.
        """
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        whole = Awaited(now_s, on_settled)
        account = self._allowance.account(payer or "", now_s)
        if is_named:
            parts = self._payers.named(parts, payer, now_s)
        self._accept_parts(whole, parts, account, now_ms, are_let_in=True)
        whole.look()
        self._work.set()
        return whole

    def remember(self, device: str, value: bytes | None, payer: str) -> None:
        """Write what is remembered of a device of ThingsBoard, before what is taken after it.

        At the expense of `payer`. Only the newest row of a device waits where there is no room.
        """
        if value is not None:
            self.account(payer).pay_for(0, len(value))
        self._rows.put(device, value)
        if not self._gate.is_paused:
            self._rows.write()
        self._work.set()

    def account(self, payer: str, *, is_named: bool = False) -> Account:
        """The account of a device; `is_named`: the one of all devices that payloads name."""
        now_s = self._clock.monotonic_s()
        of_names = self._payers.of_names
        return of_names(payer, now_s) if is_named else self._allowance.account(payer, now_s)

    def wait_s(self, device: str) -> float:
        """Seconds that a device has to wait, which may be one that nobody knows."""
        return self._allowance.wait_s(device, self._clock.monotonic_s())

    @property
    def is_full(self) -> bool:
        """Whether no further message may be accepted."""
        return self._gate.is_closed

    def _accept_batch(
        self, ledger: AckLedger, packet: mqtt5.PublishPacket, fingerprint: int
    ) -> None:
        """Accept several readings of a plain device, each as if alone; there is one answer."""
        received_at, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        account = self._payers.of(packet.topic, now_s)
        began_s = time.thread_time()
        found = None if account.wait_s(now_s) > 0 else batches.parts(packet, received_at)
        if found is None:
            self._accept(ledger, packet, fingerprint, now_s)
            return
        account.pay(len(packet.payload), time.thread_time() - began_s)
        whole = Delivery(
            packet.packet_id, packet.response_topic, packet.correlation_data, 0, now_s, fingerprint
        )
        if whole.packet_id is not None:
            ledger.add(whole)
        self._accept_parts(whole, found, account, received_at, are_let_in=True)

    def _accept_parts(
        self,
        whole: Delivery,
        parts: Sequence[Part],
        account: Account,
        received_at: int,
        *,
        are_let_in: bool,
    ) -> None:
        """`are_let_in`: whoever pays for them was asked already, and may leave a debt."""
        deliveries = [
            Delivery(None, None, None, size_of(part.packet), whole.since_s) for part in parts
        ]
        whole.parts = list(deliveries)
        for part, delivery in zip(parts, deliveries, strict=True):
            delivery.part_of = whole if whole.is_awaited else None
            delivery.is_let_in = are_let_in
            delivery.units = part.units
            if part.refusal is None:
                self._admit_or_park(part.packet, delivery, received_at)
            else:
                self._refuse_part(part.packet, delivery, part.refusal, account, received_at)
        self._gate.pause_where_full()

    def _refuse_part(
        self,
        packet: Publish,
        delivery: Delivery,
        why: Rejected,
        account: Account,
        received_at: int,
    ) -> None:
        """Refuse a part at the expense of the device that its topic names.

        Without one, all share the expense.
        """
        if why.reason is not RejectReason.QUOTA:  # who is over its share waits, and owes no more
            account.pay_refused(size_of(packet), REFUSED_S)
        record = self._refusals.letter(packet, delivery, why, account, received_at)
        if record is None:
            return
        record = record._replace(key=account.device)
        delivery.bytes = len(record.value or b"")
        self._in_flight.add(delivery.bytes)
        self._writer.write(record, delivery)

    def set_maps(self, maps: Maps, subscriptions: Subscriptions) -> None:
        """Use these maps and subscriptions from now on."""
        if self._mapper is not None:
            self._mapper.follow(maps)
            self._catalogue.foreseen = self._mapper.streams
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            self.source.resubscribe(subscriptions)

    def learn_announced(self) -> None:
        """Tell the catalogue what devices announced of fields that are there by now."""
        if self._mapper is None:
            return
        announced = self._mapper.announced
        for key, one in tuple(announced.items()):
            if self._catalogue.has_field(one.stream, one.path):
                del announced[key]
                words = {one.path: one.words}
                self._catalogue.learn_words(one.device, one.stream, words, gateway=BY_MAPS)

    def _admitted(self, packet: Publish, delivery: Delivery, received_at: int) -> bool:
        """Produce it, or answer its device; False: the catalogue must decide first."""
        account = self._payers.of(packet.topic, delivery.since_s)
        record: KafkaRecord | None
        try:
            record = paid_record(
                packet,
                account,
                self._payers,
                self._catalogue,
                self._compiled,
                received_at,
                delivery.since_s,
                is_let_in=delivery.is_let_in,
                traces=self._traces,
            )
        except AwaitsCatalogueError:
            return False
        except NotNow as why:
            record = self._refusals.letter(
                packet, delivery, why.refusal, account, received_at, later=why.later
            )
        except Rejected as why:
            if isinstance(why, OtherTypesError):
                delivery.types = why.decided
            record = self._refusals.letter(packet, delivery, why, account, received_at)
        if record is None:
            return True
        if delivery.units and record.topic == topics.UP:
            stream, by = parse_up(packet.topic).stream, account.learns_by
            self._catalogue.learn_units(record.key, stream, delivery.units, gateway=by)
        is_answered = delivery.response_topic is not None and record.topic == topics.UP
        if is_answered and not isinstance(packet, Unreadable):
            stream = parse_up(packet.topic).stream
            if self._catalogue.has_odd(stream):
                odd = odd_fields(packet.content_type, record.value or b"")
                delivery.types = self._catalogue.decided(stream, odd)
        if record.topic == topics.DEVICES and self._is_left_out(record, account, delivery):
            delivery.is_left_out = True
            self._note_part(delivery)
            return True
        delivery.bytes = len(record.value or b"")
        self._in_flight.add(delivery.bytes)
        if record.aside:
            for letter in self._refusals.letters_aside(
                record, packet.topic, account, delivery.since_s
            ):
                self._writer.write(letter, None)
        self._writer.write(record, delivery)
        return True

    def _is_left_out(self, record: KafkaRecord, account: Account, delivery: Delivery) -> bool:
        """Is it a redundant status, or one of too many?"""
        if not account.may_say_status(delivery.since_s):
            self.metrics.outcomes["left_out"] += 1
            return True
        self._outbox.on_status(
            record.key.partition("|")[0], record.value or b"{}", delivery.since_s
        )
        return self._is_repetition(record, delivery)

    def _is_repetition(self, record: KafkaRecord, delivery: Delivery) -> bool:
        """Does it repeat the last status, with no device waiting for an answer?"""
        is_wanted = delivery.response_topic is not None or self._statuses.is_wanted(
            record.key, record.value or b"{}", delivery.since_s
        )
        self.metrics.outcomes["left_out"] += not is_wanted
        return not is_wanted

    def _admit_parked(self) -> None:
        """Admit what waited for the catalogue, which has changed."""
        for topic, parked in self._parked.heads():
            if self._catalogue.is_waiting(topic.split("/")[4]):
                continue
            size = parked.delivery.bytes
            if self._admitted(parked.message, parked.delivery, parked.received_at):
                self._in_flight.remove(size)
                self._parked.remove_head(topic)

    def hold_back(self, wanted: bool) -> None:
        """Pauses or resumes: the sequencer is too far behind, or has caught up."""
        self._gate.hold_back(wanted)

    def _set_reading(self, wanted: bool) -> None:
        self.source.set_reading(wanted)
        if self.watch.adoption is not None:
            self.watch.adoption.set_reading(wanted)

    # Out: from Kafka's confirmations to the broker

    def _on_stored(
        self, record: KafkaRecord, delivery: Delivery, partition: int, offset: int
    ) -> None:
        """Answer for a record that Kafka has confirmed."""
        if record.span is not None and self._traces is not None:
            self._traces.stored(record, partition, offset)
        self.metrics.latency.add(self._polled_s - delivery.since_s)
        self.metrics.outcomes[_OUTCOMES[record.topic]] += 1
        self._in_flight.remove(delivery.bytes)
        self._confirmed_s = self._polled_s
        delivery.stored_at = (partition, offset)
        self._answer_device(delivery)
        if delivery.part_of is not None:
            self._note_part(delivery)

    def _note_part(self, delivery: Delivery) -> None:
        if (whole := delivery.part_of) is not None and whole.note_part(delivery):
            self._answer_device(whole)

    def _answer_device(self, delivery: Delivery) -> None:
        if (answer := delivery.answer()) is not None:
            self._answers.add(answer)

    def _on_too_large(self, record: KafkaRecord, delivery: Delivery | None, why: str) -> None:
        """Turn a record that even alone exceeds the topic's bound into a dead letter."""
        letter = too_large(record, why, part=self._config.name)
        if letter is None:
            self._writer.fail(f"Kafka refuses a record for {record.topic}: {why}")
            return
        if delivery is not None:
            if delivery.rejected is None:
                self.metrics.rejected[RejectReason.OVERSIZE] += 1
            delivery.rejected, delivery.detail = delivery.rejected or RejectReason.OVERSIZE, why
        self._writer.write(letter, delivery)

    def _send_answers(self) -> None:
        """Send pending answers to devices and PUBACKs to the broker, in one write."""
        packets = self._answers.packets() + pubacks(self.source.ledger)
        if packets:
            self.source.write(b"".join(packets))
        if (adoption := self.watch.adoption) is not None and (packets := pubacks(adoption.ledger)):
            adoption.write(b"".join(packets))

    def _send_down(self) -> None:
        """Send queued messages to devices, as far as the broker takes them."""
        now_ms = self._clock.now_ms()
        for key, row in self._outbox.due(now_ms):
            expires_s = -(-(row.expires_at - now_ms) // 1000)
            if not self.source.publish(
                topics.down(row.sent_to, row.kind), row.payload.encode(), expires_s=expires_s
            ):
                return
            self._outbox.on_sent(key)

    def wake(self) -> None:
        """React to a changed table immediately, e.g. by sending a command."""
        self._work.set()

    async def pump(self) -> None:
        """Pump until cancelled: poll for confirmations, answer, read on when there is room.

        Raises LocalError when Kafka refuses for good.
        """
        while True:
            self.step()
            if self._in_flight.messages or self._rows:
                await asyncio.sleep(PUMP_S)
            else:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S):
                        await self._work.wait()

    def step(self) -> None:
        """Run the pump once."""
        self._polled_s = self._clock.monotonic_s()
        self._writer.poll(self._polled_s)
        self._send_answers()
        self._send_down()
        if self._rows and self._gate.lets_rows_out:
            self._rows.write()
        self._gate.resume_where_room(is_waiting=bool(self._rows))
        if self._parked and self._catalogue.changes != self._seen_changes:
            self._seen_changes = self._catalogue.changes
            self._admit_parked()
        if self._refusals.due(self._polled_s):
            self._write_counted()
        for stream in self._catalogue.unpublished():
            self._writer.write(catalogue_row(stream, self._clock.now_ms()), None)
        self._note_metrics()
        if self._polled_s - self._looked_s >= HEALTH_S:
            self._looked_s = self._polled_s
            self._look_at_health()

    def _note_metrics(self) -> None:
        metrics, in_flight = self.metrics, self._in_flight
        metrics.inflight_messages, metrics.inflight_bytes = in_flight.messages, in_flight.bytes
        metrics.connections, metrics.sent_down = self.source.connections, self._outbox.sent
        metrics.sent_alone = self._writer.sent_alone
        metrics.others, metrics.adopted = self.watch.others, self.watch.adopted

    def _look_at_health(self) -> None:
        if not self._in_flight.messages:
            self._confirmed_s = self._polled_s
        is_unconfirmed = self._polled_s - self._confirmed_s > HEALTH_S
        is_away = not self.source.subscribed.is_set() and not self._gate.is_draining
        notes = {
            "kafka": "Kafka confirms nothing of what is in flight" if is_unconfirmed else None,
            "mqtt": f"no MQTT broker: {self.source.lost_by}" if is_away else None,
            "sequencer": BEHIND if self._gate.is_held_back else None,
        }
        for what, why in notes.items():
            self.health.note(what, why)

    def _write_counted(self) -> None:
        for letter in self._refusals.counted(self._polled_s):
            self._writer.write(letter, None)

    @property
    def _left(self) -> int:
        """Records that are not safe yet."""
        return max(self._in_flight.messages, self._writer.unconfirmed) + len(self._rows)

    async def drain(self) -> None:
        """Stop reading, wait a bounded time for Kafka's confirmations, answer, and disconnect.

        Awaited is each record: also those that no device waits for, as rows of tables and letters
        that were counted, of which nobody sends another one.
        """
        self._write_counted()
        self._gate.drain()
        deadline_s = self._clock.monotonic_s() + DRAIN_S
        self.step()
        while (left := self._left) and self._clock.monotonic_s() < deadline_s:
            await asyncio.sleep(PUMP_S)
            self.step()
        if left:
            log.warning(
                "stopped after %.0f s with %d records that Kafka has not confirmed",
                DRAIN_S,
                left,
                extra={"event": "bridge.unconfirmed", "records": left},
            )
        await self.feeds.close()
        self.watch.farewell()
        self.source.disconnect()
