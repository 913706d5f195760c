"""Who pays for a message, and may its sender say it? No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from edgewake.cloud.bridge.admission.allowance import (
    BY_MAPS,
    BY_NOBODY,
    REFUSED_S,
    Account,
    Allowance,
)
from edgewake.cloud.bridge.admission.catalogue import too_many_names
from edgewake.cloud.bridge.admission.gateways import GatewayRule, Gateways
from edgewake.cloud.bridge.admission.mapped import Part, is_mapped
from edgewake.cloud.bridge.admission.records import device_in, is_status, thing_in
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected
from edgewake.protocol.topics import UpTopic


def may_be_heard(account: Account, topic: str) -> bool:
    """Is a message on this topic of a sender who is muted perhaps more than counted?"""
    return (account.life_bytes if is_status(topic) else account.laters) > 0


class Payers:
    """Devices, and things that gateways may send for."""

    def __init__(
        self,
        allowance: Allowance,
        rules: Sequence[GatewayRule],
        knows_devices: bool,
        now_s: float,
    ) -> None:
        """`knows_devices`: does the broker know who is who?"""
        self._allowance = allowance
        self._mapped = allowance.of_all(BY_MAPS, now_s)
        self._nobody = allowance.of_all(BY_NOBODY, now_s)
        self._gateways = Gateways(rules, knows_devices=knows_devices)

    def of(self, topic: str, now_s: float) -> Account:
        """The account of the thing that its gateway may send for; else of who sends it."""
        named = thing_in(topic)
        if named is not None and self._gateways.may_speak(named.via, named.device):
            return self._allowance.of_thing(named.device, named.via, now_s)
        return self._allowance.account(device_in(topic), now_s)

    def is_left_unread(self, topic: str, now_s: float) -> bool:
        """Would a message on this topic be only counted, whatever it says?"""
        if now_s >= self._allowance.muted_until_s:
            return False
        if topic.startswith(topics.BRIDGE_PREFIX) or is_mapped(topic):
            return False
        account = self.of(topic, now_s)
        return account.is_muted(now_s) and not may_be_heard(account, topic)

    def of_mapped(self, topic: str, device: str, now_s: float) -> Account:
        """Who pays for what a map reads; `device`: the one that its topic names, or none."""
        if device:
            return self._allowance.of_name(device, self._mapped, now_s)
        return self._allowance.of_topic(topic, self._mapped, now_s)

    def of_names(self, payer: str | None, now_s: float) -> Account:
        """What `payer` has for devices that payloads name.

        Empty: all who show no name; None: all maps.
        """
        if payer is None:
            return self._mapped
        return self._allowance.together(payer, now_s) if payer else self._nobody

    def named(self, parts: Sequence[Part], payer: str | None, now_s: float) -> list[Part]:
        """Parts whose devices have their names from a payload: they cost nothing to invent.

        What all of them have together is `payer`'s, see `of_names`. A name too many is refused.
        """
        shared = self.of_names(payer, now_s)
        found: list[Part] = []
        for part in parts:
            device = device_in(part.packet.topic)
            # What is refused makes no name known.
            if device and (part.refusal is None or self._allowance.is_known(device)):
                account = self._allowance.of_name(device, shared, now_s)
                if account.is_one_too_many:
                    part = part._replace(refusal=too_many_names(payer or "", device).refusal)
            found.append(part)
        return found

    def check(self, named: UpTopic, account: Account, size: int) -> None:
        """May its sender speak for this thing? Raises Rejected, at the expense of `account`."""
        try:
            self._gateways.check(named.via, named.device)
        except Rejected:
            account.pay_refused(size, REFUSED_S)
            raise
