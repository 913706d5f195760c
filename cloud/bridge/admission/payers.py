"""Who pays for a message, and may its sender say it? No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from edgewake.cloud.bridge.admission.allowance import REFUSED_S, Account, Allowance
from edgewake.cloud.bridge.admission.gateways import GatewayRule, Gateways
from edgewake.cloud.bridge.admission.records import device_in, thing_in
from edgewake.protocol.errors import Rejected


class Payers:
    """Devices, and things that gateways may send for."""

    def __init__(
        self, allowance: Allowance, rules: Sequence[GatewayRule], knows_devices: bool
    ) -> None:
        """`knows_devices`: does the broker know who is who?"""
        self._allowance = allowance
        self._gateways = Gateways(rules, knows_devices=knows_devices)

    def of(self, topic: str, now_s: float) -> Account:
        """The account of the thing that its gateway may send for; else of who sends it."""
        named = thing_in(topic)
        if named is not None and self._gateways.may_speak(named.via, named.device):
            return self._allowance.of_thing(named.device, named.via, now_s)
        return self._allowance.account(device_in(topic), now_s)

    def check(self, topic: str, account: Account, size: int) -> None:
        """May its sender say it? Raises Rejected, at the expense of `account`."""
        named = thing_in(topic)
        if named is None:
            return
        try:
            self._gateways.check(named.via, named.device)
        except Rejected:
            account.pay_refused(size, REFUSED_S)
            raise
