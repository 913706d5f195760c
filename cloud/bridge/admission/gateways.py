"""Which gateway may speak for which things. No I/O.

A gateway sends readings of things behind it on topics of its own, so the broker's access list says
nothing of the thing's name: here is where it is looked at. Rules are patterns, and any one that
fits allows. A thing may stand in the rules of several gateways: it can then move between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import Field

from edgewake.protocol.config import Config
from edgewake.protocol.errors import Rejected, RejectReason

NAMES_MAX: Final = 65_536
"""Pairs of gateway and thing whose answer is remembered; at the bound all are looked up again."""
RULES_MAX: Final = 1000
"""Rules: a name that is new is compared with each."""
Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9._*?-]{1,64}$")]


class GatewayRule(Config):
    """`[[gateway]]`: devices that may send for things behind them."""

    name: Pattern
    """Names of gateways, `*` for any characters: `hall-*`."""
    things: Annotated[tuple[Pattern, ...], Field(min_length=1, max_length=100)]
    """Names of things that they may send for: `["meter-*"]`. Choose patterns that fit no device
    with a connection of its own."""


class Gateways:
    """The rules."""

    def __init__(self, rules: Sequence[GatewayRule], *, knows_devices: bool) -> None:
        """`knows_devices`: does the broker authenticate devices?

        Where it does not and there are no rules, everybody may speak for everything, as everybody
        may write every topic anyway.
        """
        self._rules = rules
        self._allows_all = not rules and not knows_devices
        self._known: dict[tuple[str, str], bool] = {}

    def may_speak(self, gateway: str, thing: str) -> bool:
        """May the gateway send for the thing?"""
        if self._allows_all:
            return True
        pair = (gateway, thing)
        known = self._known.get(pair)
        if known is None:
            if len(self._known) >= NAMES_MAX:
                self._known.clear()
            known = self._known[pair] = any(
                fnmatchcase(gateway, rule.name)
                and any(fnmatchcase(thing, pattern) for pattern in rule.things)
                for rule in self._rules
            )
        return known

    def check(self, gateway: str, thing: str) -> None:
        """Raises Rejected(foreign_device), which names the rule that is missing."""
        if not self.may_speak(gateway, thing):
            raise Rejected(
                RejectReason.FOREIGN_DEVICE,
                f"gateway {gateway!r} may not send for {thing!r}: expected a rule in bridge.toml, "
                f'such as [[gateway]] name = "{gateway}", things = ["{thing}"]',
            )
