"""What one device may cost a bridge: so much in a second, and so much in dead letters.

Who is over it waits, and nobody else. No I/O.

Token buckets, filled again only when one is empty: the way of a usual message is a look into a
dictionary and three comparisons. A message passes while there is anything left, so a large one may
leave a debt, which is waited for.

    messages, bytes    of all that the device sends
    busy_s             processor time beyond what a message of that size usually takes, and of what
                       is refused
    statuses           rows on a topic that the operations API reads whole
    life_bytes         of words about its life that pass although it owes something else
    laters             answers `later`; beyond the bound nothing is answered
    letters            dead letters; beyond the bound they are counted
    letter_bytes       bytes of dead letters that are kept whole; beyond the bound the first
                       LETTER_HEAD_BYTES are
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from pydantic import Field

from edgewake.protocol.config import Config

USUAL_S: Final = 100e-6
"""Seconds of processor time that any message may take: three times what one with one reading
does."""
USUAL_S_PER_BYTE: Final = 20e-9
"""The cost of each byte of a message that passes: twice what it takes to inflate, check and copy a
frame."""
MEASURED_BYTES: Final = 8192
"""Bytes of a message from which its processor time is measured, which costs a microsecond."""
REFUSED_S: Final = 100e-6
"""The cost of refusing a smaller message, in seconds; a message that passes is never expensive."""
ASK_S: Final = 0.003
"""Seconds that a question for a feed counts: it is a request to an access server. Measured: 2 to 5
ms. At a share of 0.05 that is 65 questions at once and 17 a second, of up to 32 KB of events."""
LETTER_HEAD_BYTES: Final = 512
"""Bytes kept of a dead letter of a device that used up its share."""
DEVICES_MAX: Final = 100_000
"""Devices remembered; the one that was heard of longest ago is forgotten, and has all its shares
again."""
CHANCES: Final = 8
"""Devices not heard of for longest that are kept at that bound all the same because they have used
something up: names that somebody invents push nobody's debt out, nor his own."""
NAMED_MAX: Final = 200_000
"""Names whose naming was paid for, kept for a day as a number each, 100 bytes, twice at most: one
that was forgotten and returns costs nothing. With more of them a name may cost twice a day."""
LIFE_BYTES: Final = 256 << 10
"""Bytes at once of words about its life (births, deaths, statuses) that a device may say although
it owes something else: a birth with some thousand metrics, or 256 deaths."""
LIFE_BYTES_PER_S: Final = 8 << 10
"""Bytes a second that come back of them."""
LIFE_BYTES_MIN: Final = 1 << 10
"""Bytes that each of them counts at least: eight a second."""
WAIT_S_MIN: Final = 1.0
"""Seconds that a device is asked to wait at least: one that came back at once would be over its
bound at once."""
MUTED_S: Final = 0.1
"""Seconds for which messages of a device are only counted, without a look at them, after one was
refused that had neither a dead letter nor an answer left. A device can send 60,000 small ones a
second through the broker, and to refuse them one by one takes a bridge as long as to accept them.
What it may send adds up meanwhile."""
STATUSES_PER_S: Final = 1.0
"""Statuses of a device in a second, over a minute; what is over is left out. An agent sends one a
minute, and one more when it connects."""
LATERS_PER_S: Final = 100.0
"""Answers `later` to a device in a second that is over its share. An agent sends one frame of each
stream after it, and waits."""
LATERS_BURST: Final = 1000.0
"""Such answers at once: what an agent has in flight when it hears the first. Who is not answered
sends again after a time of its own."""
DAY_S: Final = 86_400.0
THINGS_TIMES: Final = 10
"""How many times as much as one device all things behind one gateway may cost together: it may
name as many as its rule allows."""
NAMES_BURST: Final = 10_000
"""Things that are new to a bridge which one gateway may name at once, and once more in a day: the
sequencers remember each, and forget others for it."""
NAMES_WAIT_S: Final = 60.0
"""Seconds that a thing with one name too many is asked to wait."""
MAPPED_TIMES: Final = 10
"""How many times as much as one device all mapped devices together may have of dead letters and of
new streams, and all topics together that name no device of everything: a name costs nothing where
topic and payload give it."""

BY_MAPS: Final = "*"
"""Stands for the gateway of devices that maps name; no device has such a name."""
BY_NOBODY: Final = "?"
"""Stands for the gateway of devices that HTTP requests name which show nobody's credentials."""


class DeviceConfig(Config):
    """What one device may cost one bridge.

    With n bridges it may cost n times as much.
    """

    messages_per_s: float = Field(default=1_000, gt=0)
    """Messages a second, over `burst_s`: a tenth of what a bridge takes from all on a small
    machine. A frame of an agent is one message with hundreds of readings; of a plain device each
    reading counts, also of several in one message. What is over is answered `later` where the
    device waits for an answer, and else a dead letter (quota)."""
    bytes_per_s: float = Field(default=16 << 20, gt=0)
    """Bytes a second, over `burst_s`; what is over as above."""
    busy_share: float = Field(default=0.05, gt=0, le=1)
    """Share of the bridge's processor time for what costs more than usual, and for what is refused,
    over `burst_s`; what is over as above, without a look inside."""
    burst_s: float = Field(default=4.0, gt=0, le=3600)
    """Seconds over which the three above are counted."""
    letters_per_s: float = Field(default=1.0, gt=0)
    """Dead letters a second; what is over is counted, and the count kept as a dead letter."""
    letters_burst: float = Field(default=1000, ge=1)
    """Dead letters at once."""
    letter_bytes_per_day: float = Field(default=16 << 20, gt=0)
    """Bytes of dead letters that are kept whole in a day; of what is over the first 512 are kept,
    with the size."""


class Room(Enum):
    """What is kept of a dead letter."""

    WHOLE = "whole"
    HEAD = "head"
    NONE = "none"


class LeftOut(NamedTuple):
    """Dead letters of a device that were counted only."""

    device: str
    messages: int
    bytes: int


class Account:
    """What one device has left."""

    __slots__ = (
        "_limits",
        "at_s",
        "busy_s",
        "bytes",
        "device",
        "gateway",
        "is_one_too_many",
        "key",
        "laters",
        "learns_by",
        "left_out",
        "left_out_bytes",
        "letter_bytes",
        "letters",
        "life_bytes",
        "messages",
        "muted_until_s",
        "names",
        "shared",
        "statuses",
    )

    def __init__(
        self, device: str, limits: Limits, now_s: float, *, gateway: Account | None = None
    ) -> None:
        """`gateway`: what all things have together that come by it."""
        self._limits = limits
        self.device = self.key = device
        self.gateway = gateway
        self.at_s = now_s
        self.messages, self.bytes, self.busy_s = limits.messages, limits.bytes, limits.busy_s
        self.statuses, self.letters, self.letter_bytes = (
            limits.statuses,
            limits.letters,
            limits.letter_bytes,
        )
        self.laters = limits.laters
        self.names = limits.names
        self.life_bytes = limits.life_bytes
        self.muted_until_s = now_s
        """Until then what it sends is only counted, unless it is owed an answer, or has a word left
        about its life."""
        self.is_one_too_many = False
        """Did its gateway name too many, so that this one is not taken in?"""
        self.left_out = self.left_out_bytes = 0
        self.share_with(gateway)

    def share_with(self, shared: Account | None) -> None:
        """What its dead letters, new streams and new fields count against, too."""
        self.shared: Account | None = shared
        self.learns_by = "" if shared is None else shared.key.removeprefix("|")
        """The gateway whose share of new streams and fields counts, too; empty: none."""

    def wait_s(self, now_s: float) -> float:
        """Seconds until its next message may pass; 0: now."""
        # Shares are refilled only where one is used up: nearly all messages find some of each.
        has_all = self.messages > 0 and self.bytes > 0 and self.busy_s > 0
        own_s = 0.0 if has_all else self._debt_s(now_s)
        if self.gateway is None:
            return own_s
        if self.is_one_too_many:
            return NAMES_WAIT_S
        return max(own_s, self.gateway.wait_s(now_s))

    def _debt_s(self, now_s: float) -> float:
        self._fill(now_s)
        config = self._limits.config
        debts = (
            -self.messages / config.messages_per_s,
            -self.bytes / config.bytes_per_s,
            -self.busy_s / config.busy_share,
        )
        longest = max(debts)
        return 0.0 if longest < 0 else max(WAIT_S_MIN, longest)

    def pay(self, size: int, busy_s: float) -> None:
        """A message of `size` bytes passed, and took `busy_s` of processor time."""
        self.messages -= 1
        self.bytes -= size
        if busy_s:
            # Only what is more than usual: `messages` and `bytes` bound what usual ones take.
            extra_s = busy_s - USUAL_S - USUAL_S_PER_BYTE * size
            if extra_s > 0:
                self.busy_s -= extra_s
        if self.gateway is not None:
            self.gateway.pay(size, busy_s)

    def pay_refused(self, size: int, busy_s: float) -> None:
        """A message of `size` bytes was refused, which took `busy_s` of processor time."""
        self.messages -= 1
        self.bytes -= size
        self.busy_s -= busy_s
        if self.gateway is not None:
            self.gateway.pay_refused(size, busy_s)

    def pay_for(self, messages: int, size: int) -> None:
        """Several messages came together, of `size` bytes."""
        self.messages -= messages
        self.bytes -= size
        if self.gateway is not None:
            self.gateway.pay_for(messages, size)

    def may_be_told_later(self, now_s: float) -> bool:
        """May it be answered `later` once more? It counts."""
        if self.laters <= 0:
            self._fill(now_s)
        if self.laters <= 0 or not (self.gateway is None or self.gateway.may_be_told_later(now_s)):
            return False
        self.laters -= 1
        return True

    def is_muted(self, now_s: float) -> bool:
        """Is what it sends only counted now?"""
        return now_s < self.muted_until_s or (
            self.gateway is not None and now_s < self.gateway.muted_until_s
        )

    def may_say_status(self, now_s: float) -> bool:
        """May another status be written? It counts."""
        if self.statuses <= 0:
            self._fill(now_s)
        if self.statuses <= 0:
            return False
        self.statuses -= 1
        return True

    def may_say_life(self, size: int, now_s: float) -> bool:
        """May a word about its life pass, of `size` bytes, though it has to wait? It counts."""
        if self.is_one_too_many:
            return False
        if self.life_bytes <= 0:
            self._fill(now_s)
        if self.life_bytes <= 0:
            return False
        if self.gateway is not None and not self.gateway.may_say_life(size, now_s):
            return False
        self.life_bytes -= max(size, LIFE_BYTES_MIN)
        return True

    def may_name(self, now_s: float) -> bool:
        """May another thing be named? It counts."""
        if self.names <= 0:
            self._fill(now_s)
        if self.names <= 0:
            return False
        self.names -= 1
        return True

    def is_whole(self, now_s: float) -> bool:
        """Has it all its shares, so that nothing is lost by forgetting it?"""
        self._fill(now_s)
        limits = self._limits
        return not self.left_out and (
            self.messages,
            self.bytes,
            self.busy_s,
            self.statuses,
            self.letters,
            self.letter_bytes,
            self.laters,
            self.names,
            self.life_bytes,
        ) == (
            limits.messages,
            limits.bytes,
            limits.busy_s,
            limits.statuses,
            limits.letters,
            limits.letter_bytes,
            limits.laters,
            limits.names,
            limits.life_bytes,
        )

    def letter_room(self, size: int, now_s: float) -> Room:
        """What is kept of a dead letter of `size` bytes? It counts."""
        if self.letters <= 0 or self.letter_bytes < size:
            self._fill(now_s)
        if self.letters <= 0:
            return Room.NONE
        self.letters -= 1
        if self.shared is not None:
            room = self.shared.letter_room(size, now_s)
            if room is not Room.WHOLE:
                return room
        if size <= LETTER_HEAD_BYTES:
            return Room.WHOLE
        if self.letter_bytes < size:
            return Room.HEAD
        self.letter_bytes -= size
        return Room.WHOLE

    def leave_out(self, size: int) -> None:
        """A dead letter was counted and not kept."""
        self.left_out += 1
        self.left_out_bytes += size

    def _fill(self, now_s: float) -> None:
        passed_s, self.at_s = now_s - self.at_s, now_s
        limits, config = self._limits, self._limits.config
        self.messages = min(limits.messages, self.messages + passed_s * config.messages_per_s)
        self.bytes = min(limits.bytes, self.bytes + passed_s * config.bytes_per_s)
        self.busy_s = min(limits.busy_s, self.busy_s + passed_s * config.busy_share)
        self.statuses = min(limits.statuses, self.statuses + passed_s * STATUSES_PER_S)
        self.letters = min(limits.letters, self.letters + passed_s * config.letters_per_s)
        self.letter_bytes = min(
            limits.letter_bytes, self.letter_bytes + passed_s * config.letter_bytes_per_day / DAY_S
        )
        self.laters = min(limits.laters, self.laters + passed_s * limits.laters_per_s)
        self.names = min(limits.names, self.names + passed_s * limits.names / DAY_S)
        self.life_bytes = min(
            limits.life_bytes, self.life_bytes + passed_s * limits.life_bytes_per_s
        )


class Limits:
    """What a device has at most at once."""

    def __init__(self, config: DeviceConfig, names: float = NAMES_BURST, *, times: int = 1) -> None:
        """`times`: for how many devices together it is."""
        self.config = config
        self.laters, self.laters_per_s = times * LATERS_BURST, times * LATERS_PER_S
        self.life_bytes = float(times * LIFE_BYTES)
        self.life_bytes_per_s = times * LIFE_BYTES_PER_S
        self.names = names
        self.messages = config.messages_per_s * config.burst_s
        self.bytes = config.bytes_per_s * config.burst_s
        self.busy_s = config.busy_share * config.burst_s
        self.statuses = STATUSES_PER_S * 60
        self.letters = config.letters_burst
        self.letter_bytes = config.letter_bytes_per_day


class Named:
    """Names that were paid for in the last day. At most twice NAMED_MAX, as numbers."""

    def __init__(self) -> None:
        self._now: set[int] = set()
        self._before: set[int] = set()
        self._since_s = 0.0

    def has(self, mark: int, now_s: float) -> bool:
        """Was it noted in the last day, or up to a day before?"""
        if now_s - self._since_s >= DAY_S:
            self._turn(now_s)
        return mark in self._now or mark in self._before

    def note(self, mark: int, now_s: float) -> None:
        """It was paid for."""
        if len(self._now) >= NAMED_MAX:
            self._turn(now_s)
        self._now.add(mark)

    def _turn(self, now_s: float) -> None:
        is_old = now_s - self._since_s >= 2 * DAY_S
        self._before = set() if is_old else self._now
        self._now = set()
        self._since_s = now_s


class Allowance:
    """The accounts of all devices."""

    def __init__(self, config: DeviceConfig) -> None:
        self._limits = Limits(config)
        self._of_things = Limits(_times(config, THINGS_TIMES), times=THINGS_TIMES)
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        """By when they were used last."""
        self._named = Named()
        self._untold: set[str] = set()
        self.muted_until_s = float("-inf")
        """The latest of all accounts': from then on nobody is muted."""

    def mute(self, account: Account, now_s: float) -> None:
        """A message was only counted: so are the next ones, where that was for want of a share.

        Those of all its gateway's things, where that has none left.
        """
        if account.wait_s(now_s) > 0:
            gateway = account.gateway
            muted = account if gateway is None or gateway.wait_s(now_s) <= 0 else gateway
            muted.muted_until_s = self.muted_until_s = now_s + MUTED_S

    def account(self, device: str, now_s: float) -> Account:
        """The device's; a new one has everything."""
        account = self._accounts.get(device)
        if account is None:
            return self._keep(device, Account(device, self._limits, now_s), now_s)
        self._accounts.move_to_end(device)
        return account

    def wait_s(self, device: str, now_s: float) -> float:
        """Seconds that a device has to wait; nobody gets an account by the question."""
        account = self._accounts.get(device)
        return 0.0 if account is None else account.wait_s(now_s)

    def is_known(self, device: str) -> bool:
        """Has the device an account?"""
        return device in self._accounts

    def of_thing(self, thing: str, gateway: str, now_s: float) -> Account:
        """A thing's account at this gateway: what another gateway sends costs it nothing here."""
        key = f"{thing}|{gateway}"
        account = self._used(key)
        together = self.together(gateway, now_s)  # used by each of its things
        if account is None or account.gateway is not together:
            account = Account(thing, self._limits, now_s, gateway=together)
            if not self._may_name(key, together, now_s):
                account.is_one_too_many = True
                return account
            self._keep(key, account, now_s)
        return account

    def of_name(self, device: str, shared: Account, now_s: float) -> Account:
        """The account of a device that a payload or a foreign topic names.

        `shared`: what all have together that are named so.
        """
        account = self._used(device)
        if account is None:
            account = Account(device, self._limits, now_s)
            if self._may_name(device, shared, now_s):
                self._keep(device, account, now_s)
            else:
                account.gateway, account.is_one_too_many = shared, True
        if account.shared is not shared:
            account.share_with(shared)
        return account

    def together(self, gateway: str, now_s: float) -> Account:
        """What all may have together that come by a gateway."""
        key = f"|{gateway}"
        account = self._used(key)
        if account is None:
            account = self._keep(key, Account(gateway, self._of_things, now_s), now_s)
        return account

    def of_topic(self, topic: str, mapped: Account, now_s: float) -> Account:
        """The account of a topic that names no device; `mapped`: of all such topics together."""
        key = f"/{topic}"
        account = self._used(key)
        if account is None:
            account = self._keep(key, Account("", self._limits, now_s, gateway=mapped), now_s)
        return account

    def _used(self, key: str) -> Account | None:
        account = self._accounts.get(key)
        if account is not None:
            self._accounts.move_to_end(key)
        return account

    def _may_name(self, key: str, shared: Account, now_s: float) -> bool:
        """May it be named? It counts once in a day for whoever shares the expense."""
        mark = hash((shared.key, key))
        if self._named.has(mark, now_s):
            return True
        if not shared.may_name(now_s):
            return False
        self._named.note(mark, now_s)
        return True

    def _keep(self, key: str, account: Account, now_s: float) -> Account:
        if len(self._accounts) >= DEVICES_MAX:
            self._forget_one(now_s)
        account.key = key
        self._accounts[key] = account
        return account

    def _forget_one(self, now_s: float) -> None:
        """The one that was used longest ago of those that lose nothing by it."""
        for _ in range(CHANCES):
            key, account = self._accounts.popitem(last=False)
            if account.is_whole(now_s):
                return
            self._accounts[key] = account
        self._accounts.popitem(last=False)

    def of_all(self, way: str, now_s: float) -> Account:
        """What all devices may have together that come by a way which shows nobody's name.

        `way`: BY_MAPS or BY_NOBODY.
        """
        config = _times(self._limits.config, MAPPED_TIMES)
        limits = Limits(config, MAPPED_TIMES * NAMES_BURST, times=MAPPED_TIMES)
        account = Account("", limits, now_s)
        account.key = f"|{way}"
        return account

    def note_left_out(self, account: Account, size: int) -> None:
        """A dead letter of the device was counted only; `left_out` tells it."""
        account.leave_out(size)
        self._untold.add(account.key)

    def left_out(self) -> Iterator[LeftOut]:
        """What was counted only since the last call, by device."""
        for key in self._untold:
            account = self._accounts.get(key)
            if account is not None:
                yield LeftOut(account.device, account.left_out, account.left_out_bytes)
                account.left_out = account.left_out_bytes = 0
        self._untold.clear()


def _times(config: DeviceConfig, times: int) -> DeviceConfig:
    """The allowance of this many devices together."""
    more = {
        name: times * getattr(config, name)
        for name in (
            "messages_per_s",
            "bytes_per_s",
            "letters_per_s",
            "letters_burst",
            "letter_bytes_per_day",
        )
    }
    return config.model_copy(update={**more, "busy_share": min(1.0, times * config.busy_share)})
