"""A message's record at its device's expense. No I/O but a look at the processor's clock."""

from __future__ import annotations

import time
from typing import Final

import mqtt5

from edgewake.cloud.bridge.admission.allowance import MEASURED_BYTES, REFUSED_S, Account
from edgewake.cloud.bridge.admission.catalogue import Catalogue, NotNow, over_share
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.cloud.bridge.admission.payers import Payers
from edgewake.cloud.bridge.admission.records import (
    KafkaRecord,
    is_status,
    record_of,
    thing_in,
)
from edgewake.cloud.bridge.traces import BridgeTraces
from edgewake.protocol.errors import Rejected
from edgewake.protocol.mqtt import Unreadable


def paid_record(
    packet: mqtt5.PublishPacket | Unreadable,
    account: Account,
    payers: Payers,
    catalogue: Catalogue,
    compiled: CompiledStreams,
    received_at: int,
    now_s: float,
    *,
    is_let_in: bool,
    traces: BridgeTraces | None,
) -> KafkaRecord:
    """`is_let_in`: the whole message was accepted already, and may leave a debt.

    Raises Rejected, NotNow or AwaitsCatalogueError.
    """
    size = size_of(packet)
    if account.is_one_too_many or not is_let_in:
        wait_s = account.wait_s(now_s)
        if wait_s > 0 and not (is_status(packet.topic) and account.may_say_life(size, now_s)):
            raise over_share(account, wait_s)
    named = thing_in(packet.topic)
    if named is not None:
        payers.check(named, account, size)
    began_s = time.thread_time() if size >= MEASURED_BYTES else None
    try:
        record = record_of(
            packet,
            catalogue,
            received_at=received_at,
            compiled=compiled,
            gateway=account.learns_by,
        )
        if traces is not None:
            record = traces.begun(record, packet, now_s)
    except (Rejected, NotNow):
        account.pay_refused(size, REFUSED_S if began_s is None else time.thread_time() - began_s)
        raise
    account.pay(size, 0.0 if began_s is None else time.thread_time() - began_s)
    return record


PROPERTY_BYTES: Final = 200
"""Memory that a property takes: a pair of two short texts."""


def size_of(packet: mqtt5.PublishPacket | Unreadable) -> int:
    """Bytes of a message."""
    if isinstance(packet, Unreadable):
        return packet.size
    return len(packet.payload) + PROPERTY_BYTES * len(packet.user_properties)
