"""Parts of minutes, hours and days that came after these were summed up. Pure.

Ten minutes after its end the analysis forgets a minute (open_minutes). What comes later is a record
of its own, because summaries merge: the part `late:N` of its minute, N being the transaction that
wrote it, once. Hours and days are rolled up from minutes and their parts.

Where the minutes themselves are kept no more nothing could be rolled up. Then it is a part of the
hour, and one of the day; both count beside what is rolled up and never in it. Where hours are kept
no more it is one of the day alone, and after that it is too late.

On a topic there is one part for each transaction that had something for it, as long as the topic
keeps it. The store adds each to the ones before, so a minute, hour or day has one row of late
readings, however many came. Sketches that a device brings so late are rows of their own as always,
`late:DEVICE|END|KIND`: they may be sent again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from edgewake.cloud.summaries.summary import Record, Series, Step, Summary, merged

PREFIX: Final = "late:"
"""The prefix of the maker. No device's name has a colon."""


def maker(revision: int) -> str:
    """The maker of the parts that a transaction writes."""
    return f"{PREFIX}{revision}"


def is_late(maker: str) -> bool:
    """Is it of a part?"""
    return maker.startswith(PREFIX)


def is_part(maker: str) -> bool:
    """Is it one that is written once, and adds to those before?"""
    return is_late(maker) and "|" not in maker


def is_beside(step: Step, maker: str) -> bool:
    """Does it count beside what is rolled up of its step, and never in it?"""
    return step is not Step.MINUTE and is_late(maker)


def number(maker: str) -> int | None:
    """N of a part that the cloud made."""
    return int(maker.removeprefix(PREFIX)) if is_part(maker) else None


def parts(records: Iterable[Record], step: Step, maker: str) -> list[Record]:
    """One part for each series and step of what came late of minutes."""
    found: dict[tuple[Series, int], list[Summary]] = defaultdict(list)
    for record in records:
        found[record.series, step.floor(record.start_ms)].append(record.summary)
    return [
        Record(series, start, start + step.ms, merged(ones), maker)
        for (series, start), ones in found.items()
    ]


def filed(
    minutes: Iterable[Record], oldest: Mapping[str, Mapping[Step, int]]
) -> Iterator[tuple[Step, Record]]:
    """Parts of minutes as they are written.

    `oldest`: stream → step → begin in ms from which such are kept.
    """
    old: dict[str, list[Record]] = defaultdict(list)
    for part in minutes:
        if part.start_ms >= oldest[part.series.stream][Step.MINUTE]:
            yield Step.MINUTE, part
        else:
            old[part.maker].append(part)
    for maker, ones in old.items():
        for step in (Step.HOUR, Step.DAY):
            kept = (
                part
                for part in parts(ones, step, maker)
                if part.start_ms >= oldest[part.series.stream][step]
            )
            yield from ((step, part) for part in kept)
