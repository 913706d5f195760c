"""What a device may still say while it owes."""

from __future__ import annotations

import mqtt5
import pytest

from edgewake.cloud.bridge.admission.allowance import (
    LIFE_BYTES,
    LIFE_BYTES_MIN,
    Allowance,
    DeviceConfig,
)
from edgewake.cloud.bridge.admission.catalogue import Catalogue, NotNow
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.cloud.bridge.admission.payers import Payers
from edgewake.cloud.bridge.expense import paid_record
from edgewake.protocol import topics

NOW = 1_790_000_000_000


def test_that_it_is_gone_is_heard_of_a_device_that_owes_for_its_data() -> None:
    allowance, catalogue = Allowance(DeviceConfig()), Catalogue(lambda: 0.0)
    payers = Payers(allowance, (), True, 0.0)
    account = allowance.account("car", 0.0)

    def record(topic: str, payload: bytes) -> str:
        return paid_record(
            mqtt5.PublishPacket(topic, payload),
            payers.of(topic, 0.0),
            payers,
            catalogue,
            CompiledStreams(catalogue),
            NOW,
            0.0,
            is_let_in=False,
            traces=None,
        ).topic

    assert record(topics.status("car"), b"online") == topics.DEVICES
    account.pay(1 << 40, 0.0)
    owed = account.bytes
    for topic in (topics.up("car", "speed"), topics.up("car", "status")):
        with pytest.raises(NotNow):
            record(topic, b'{"n": 1}')
    assert record(topics.status("car"), b"offline") == topics.DEVICES
    for _ in range(LIFE_BYTES // LIFE_BYTES_MIN - 1):
        record(topics.status("car"), b"offline")
    with pytest.raises(NotNow):
        record(topics.status("car"), b"offline")
    assert account.bytes > owed - 10_000, "what it says of its life hardly adds to what it owes"
