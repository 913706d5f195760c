"""Decides when a client of Kafka is replaced: no client, clock or thread of its own.

librdkafka 2.16 forgets every broker that it knows when an answer names topics and no broker, which
is what a Kafka says while its own controller has shut it out for being silent too long (a machine
under load, a process that stood still). From then on such a client asks nobody any more, for ever:
a question fails with "broker transport failure" four seconds later, or waits; a new client is
answered at once. Nothing that a client says tells this state from a Kafka that is away, so what
counts is time.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

REMAKE_S: Final = 5.0
"""Seconds in which no question was answered, and one failed at least, after which the next question
is asked by a new client. Longer than one question's own time (METADATA_TIMEOUT_S), so that one that
was lost on its way is not enough. A new client costs 2 ms and a connection: while Kafka is away,
each of ours is replaced this often at first."""
REMAKE_MAX_S: Final = 60.0
"""Bound of the doubling for clients that were never answered: on a starved machine a greeting may
take longer than REMAKE_S, and a client that is given up before it is through would be so for
ever."""


class Mortality:
    """The failures of one client. Times are seconds of a monotonic clock. For one thread only."""

    def __init__(self, remake_s: float = REMAKE_S) -> None:
        self._first_s = remake_s
        self._remake_s = remake_s
        self._failing_since_s: float | None = None
        """When the first question was asked that failed, since one was answered or the client was
        made."""

    def answered(self) -> None:
        """Kafka answered a question, be it with an error."""
        self._failing_since_s = None
        self._remake_s = self._first_s

    def unanswered(self, asked_s: float) -> None:
        """A question that was asked then was not answered."""
        if self._failing_since_s is None:
            self._failing_since_s = asked_s

    def is_over(self, now_s: float) -> bool:
        """Is the client to be given up?"""
        return self._failing_since_s is not None and now_s - self._failing_since_s >= self._remake_s

    def made_anew(self) -> None:
        """There is another client now, which has twice as long to be answered as the one before."""
        self._failing_since_s = None
        self._remake_s = max(self._first_s, min(2 * self._remake_s, REMAKE_MAX_S))


def is_answer(error: KafkaError) -> bool:
    """Does an error come from Kafka?

    Those of librdkafka itself (no broker reached, time-out, no known leader) are negative.
    """
    return bool(error.code() >= 0)
