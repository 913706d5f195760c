"""Counts what devices said against what came out. Knows nothing of ours, and imports nothing of it.

Whoever drives the devices writes down

* `put`     a device said its number `n`: when, and what value; a value that is no number is odd
* `came`    a client was shown number `n`: its time, its value, and the text that stands beside it
* `beside`  a reading was kept aside with this text
* `away`    nobody listened to a family of devices that keep nothing

Devices of two kinds are told apart. One that waits for an answer, or whose broker keeps its
messages, is *promised*: each number comes. One that speaks to nobody (a bus, a register that is
asked for, a message that is sent once) is not: a number that was said while its listener was dead
may be missing, and only then. What is said again and has no number of its own (`may_double`) may
come twice where it was under way when its listener died, and only then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

Key = tuple[str, int]
"""A device, as its family calls it, and the number of what it said."""


@dataclass(frozen=True, slots=True)
class Put:
    """What a device said."""

    family: str
    device: str
    n: int
    t_ms: int
    value: float | str
    late_ms: int = 0
    """The time may be later by so much: the device has no clock of its own."""
    promised: bool = True
    said_ms: int | None = None
    """When it was said, by a right clock; None: at `t_ms`."""
    may_double: bool = False

    @property
    def at_ms(self) -> int:
        """When it was said."""
        return self.t_ms if self.said_ms is None else self.said_ms


@dataclass(frozen=True, slots=True)
class Came:
    """What a client was shown."""

    device: str
    n: int
    t_ms: int
    value: float | None
    beside: str | None = None
    """What stands beside a value that is none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, each at most once."""

    lost: tuple[Key, ...] = ()
    twice: tuple[Key, ...] = ()
    wrong_time: tuple[Key, ...] = ()
    wrong_value: tuple[Key, ...] = ()
    odd_lost: tuple[Key, ...] = ()
    """Values that are no number, and that nobody kept."""
    strangers: tuple[Key, ...] = ()
    """Came, and nobody said it."""
    excused: tuple[Key, ...] = ()
    """Missing, and said to nobody."""
    doubled: tuple[Key, ...] = ()
    """Came twice, and was under way to who died."""
    kept_again: tuple[Key, ...] = ()
    """Kept aside more than once, and shown never: whoever does not hear that it was refused says it
    again, and nothing of it is counted."""
    odd_kept: int = 0
    good: int = 0

    @property
    def is_clean(self) -> bool:
        return not any(
            getattr(self, name)
            for name in (one.name for one in fields(self))
            if name not in ("excused", "doubled", "kept_again", "odd_kept", "good")
        )

    def __str__(self) -> str:
        parts = [f"{self.good} good", f"{self.odd_kept} odd kept beside"]
        for one in fields(self):
            found = getattr(self, one.name)
            if isinstance(found, tuple):
                parts.append(f"{len(found)} {one.name.replace('_', ' ')} {list(found[:5])}")
        return ", ".join(parts)


@dataclass
class Oracle:
    """Takes notes, and judges."""

    puts: dict[Key, Put] = field(default_factory=dict)
    cames: list[Came] = field(default_factory=list)
    besides: Counter[Key] = field(default_factory=Counter)
    texts: dict[Key, str] = field(default_factory=dict)
    aways: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Family → when nobody listened, ms."""

    def put(self, put: Put) -> None:
        """A device says it. Its numbers are its own business, but none may be used twice."""
        key = (put.device, put.n)
        assert key not in self.puts, f"{key} was said before"
        self.puts[key] = put

    def came(self, came: Came) -> None:
        """A client was shown it."""
        self.cames.append(came)

    def beside(self, device: str, n: int, text: str) -> None:
        """A reading was kept aside."""
        self.besides[device, n] += 1
        self.texts[device, n] = text

    def away(self, families: Iterable[str], from_ms: int, to_ms: int) -> None:
        """Nobody listened to these."""
        for family in families:
            self.aways.setdefault(family, []).append((from_ms, to_ms))

    def judge(self) -> Verdict:
        """All that was noted so far."""
        shown = Counter((one.device, one.n) for one in self.cames)
        by_key = {(one.device, one.n): one for one in self.cames}
        lost, excused = _missing(self.puts, shown, self.besides, self.aways)
        twice, doubled = _twice(self.puts, shown, self.besides, self.aways)
        wrong_time, wrong_value, odd_lost, odd_kept = [], [], [], 0
        for key, put in self.puts.items():
            one = by_key.get(key)
            if one is not None and not put.t_ms <= one.t_ms <= put.t_ms + put.late_ms:
                wrong_time.append(key)
            if isinstance(put.value, str):
                kept = self.texts.get(key) == put.value or (
                    one is not None and one.value is None and one.beside == put.value
                )
                odd_kept += kept
                if not kept and (one is not None or key in self.besides):
                    odd_lost.append(key)
            elif one is not None and (one.value != put.value or one.beside is not None):
                wrong_value.append(key)
        return Verdict(
            lost=tuple(lost),
            excused=tuple(excused),
            twice=tuple(twice),
            doubled=tuple(doubled),
            kept_again=tuple(
                key for key, count in self.besides.items() if count > 1 and key not in shown
            ),
            wrong_time=tuple(wrong_time),
            wrong_value=tuple(wrong_value),
            odd_lost=tuple(odd_lost),
            strangers=tuple({*shown, *self.besides} - self.puts.keys()),
            odd_kept=odd_kept,
            good=len(shown.keys() & self.puts.keys()),
        )


def _missing(
    puts: Mapping[Key, Put],
    shown: Mapping[Key, int],
    besides: Mapping[Key, int],
    aways: Mapping[str, list[tuple[int, int]]],
) -> tuple[list[Key], list[Key]]:
    """Lost; and missing where nobody listened and nothing was promised."""
    lost, excused = [], []
    for key, put in puts.items():
        if key in shown or key in besides:
            continue
        (excused if _was_away(put, aways) and not put.promised else lost).append(key)
    return lost, excused


def _twice(
    puts: Mapping[Key, Put],
    shown: Mapping[Key, int],
    besides: Mapping[Key, int],
    aways: Mapping[str, list[tuple[int, int]]],
) -> tuple[list[Key], list[Key]]:
    """Twice; and twice where it was under way, and has no number."""
    twice, doubled = [], []
    for key, count in shown.items():
        if count + (key in besides) < 2:
            continue
        put = puts.get(key)
        is_excused = put is not None and put.may_double and count == 2 and _was_away(put, aways)
        (doubled if is_excused else twice).append(key)
    return twice, doubled


def _was_away(put: Put, aways: Mapping[str, list[tuple[int, int]]]) -> bool:
    """Did nobody listen when it was said?"""
    return any(begin <= put.at_ms <= end for begin, end in aways.get(put.family, ()))
