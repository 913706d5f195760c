"""Why a part cannot do its work at the moment: what /readyz answers, and a gauge.

Decides only; for several threads.

What lasts less than TOLD_S is not reported: a broker that was restarted is back before. What is
reported here needs nobody's hand as long as what it names comes back; /healthz is another question,
whether the part itself turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import Metric

from edgewake.cloud.metrics import gauges

TOLD_S: Final = 5.0
"""Seconds that something must have been in the way before the part says that it is not ready."""


class Health:
    """The health of one part. `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float], told_s: float = TOLD_S) -> None:
        self._now_s = now_s
        self._told_s = told_s
        self._troubles: dict[str, tuple[float, str]] = {}
        self._at_once: set[str] = set()

    def note(self, what: str, why: str | None, *, is_told_at_once: bool = False) -> None:
        """Note a trouble and its reason; None: it is over.

        `what` is one word for programs, e.g. `kafka`, `why` a sentence without its end.

        `is_told_at_once`: a part that starts is not ready from its first moment on.
        """
        if why is None:
            self._troubles.pop(what, None)
            self._at_once.discard(what)
            return
        since_s, _ = self._troubles.get(what, (self._now_s(), ""))
        self._troubles[what] = since_s, why
        if is_told_at_once:
            self._at_once.add(what)

    def troubles(self) -> dict[str, tuple[float, str]]:
        """What is told: seconds that it lasts, and why."""
        now_s = self._now_s()
        found = {
            what: (now_s - since_s, why) for what, (since_s, why) in list(self._troubles.items())
        }
        return {
            what: (seconds, why)
            for what, (seconds, why) in found.items()
            if seconds >= self._told_s or what in self._at_once
        }

    def why_not_ready(self) -> str:
        """For people; empty where nothing is in the way."""
        return "; ".join(f"{why}, for {seconds:.0f} s" for seconds, why in self.troubles().values())

    def gather(self) -> Iterable[Metric]:
        """The metrics of health for Prometheus."""
        lasting: dict[object, float] = {
            what: seconds for what, (seconds, _) in self.troubles().items()
        }
        yield gauges(
            "edgewake_not_ready_seconds",
            "How long something has been in the way of this part's work",
            "what",
            lasting,
        )
