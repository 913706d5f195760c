"""Streams that cannot be summed up: found by trying each alone, left out for a while, tried again.

The others go on.

A batch of one stream alone that cannot be computed may only be too large: a device that comes back
brings a week of minutes. So it is tried with ever fewer records (piece_size) before its stream is
left out.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection
from typing import Final

from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.analysis")

SET_ASIDE_S: Final = (30.0, 600.0)
"""Seconds until a stream that cannot be computed is tried again, first and longest."""


class SetAside:
    """Which streams are left out, why, and when each is tried again, alone."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock, self._rng = clock, rng
        self._backoffs: dict[str, Backoff] = {}
        self._not_before_s: dict[str, float] = {}
        self._suspects: list[str] = []
        self.causes: dict[str, str] = {}
        """Stream → why it is left out."""

    def chosen(self, streams: Collection[str]) -> list[str]:
        """What the next batch is to be of: one that is to be tried alone, or all that are well."""
        now_s = self._clock.monotonic_s()
        due = [
            name for name in self.causes if name in streams and now_s >= self._not_before_s[name]
        ]
        alone = [name for name in (*self._suspects, *due) if name in streams]
        return alone[:1] or [name for name in streams if name not in self.causes]

    def failed(self, streams: Collection[str], cause: str, *, records: int) -> None:
        """Record that a batch of `records` records of these streams could not be computed."""
        if len(streams) > 1:
            self._suspects = sorted(streams)
            return
        for name in streams:
            if records > 1:
                self._suspects = [name, *(other for other in self._suspects if other != name)]
                continue
            backoff = self._backoffs.setdefault(
                name, Backoff(self._rng, first_s=SET_ASIDE_S[0], max_s=SET_ASIDE_S[1])
            )
            self._not_before_s[name] = self._clock.monotonic_s() + backoff.next_s()
            if name not in self.causes:
                log.warning(
                    "stream %s cannot be summed up: %s",
                    name,
                    cause[:500],
                    extra={"event": "summaries.aside", "stream": name},
                )
            self.causes[name] = cause
            self._suspects = [other for other in self._suspects if other != name]

    def worked(self, streams: Collection[str]) -> bool:
        """A batch of these was computed. Is another one to be tried at once?"""
        for name in streams:
            if self.causes.pop(name, None) is not None:
                self._backoffs.pop(name)
                log.info(
                    "stream %s is summed up again",
                    name,
                    extra={"event": "summaries.back", "stream": name},
                )
        self._suspects = [name for name in self._suspects if name not in streams]
        return bool(self._suspects)
