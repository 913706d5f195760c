"""Who pays for devices that payloads name."""

from __future__ import annotations

import mqtt5

from edgewake.cloud.bridge.admission import allowance
from edgewake.cloud.bridge.admission.allowance import NAMES_BURST, Allowance, DeviceConfig
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.admission.payers import Payers
from edgewake.protocol import topics


def test_who_shows_no_name_by_http_and_maps_pay_each_for_themselves() -> None:
    payers = Payers(Allowance(DeviceConfig()), (), False, 0.0)

    def refused(payer: str | None, *names: str) -> int:
        parts = [Part(mqtt5.PublishPacket(topics.up(name, "s"), b"{}")) for name in names]
        return sum(one.refusal is not None for one in payers.named(parts, payer, 0.0))

    most = allowance.MAPPED_TIMES * NAMES_BURST
    assert refused("", *(f"invented-{n}" for n in range(most))) == 0
    assert refused("", "one-more") == 1, "it has named all that it may"
    assert refused(None, "lamp") == 0, "what maps name goes on"
    assert refused("gate", "meter") == 0, "and what a gateway names"
    nobody, maps = payers.of_names("", 0.0), payers.of_names(None, 0.0)
    nobody.pay(1 << 40, 0.0)
    assert (nobody.wait_s(0.0) > 0, maps.wait_s(0.0)) == (True, 0)
    assert len({nobody.key, maps.key, payers.of_names("gate", 0.0).key}) == 3
