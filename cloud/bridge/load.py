"""Do many records come? Then they are gathered, and each of few goes at once. No I/O.

Each partition's records are a batch of their own, which Kafka checks, writes and confirms. Where a
batch holds one record, Kafka works more than all others together. Only many wait for each other: a
lone record goes at once.
"""

from __future__ import annotations

from typing import Final

from edgewake.cloud.kafka.rate import Rate

MANY_PER_S: Final = 300
"""Records a second from which they are many. At 1,000 a second Kafka and a sequencer that gathered
for 50 ms worked half as much as with records that go as they come (0.56 and 0.43 of a processor,
0.33 and 0.21); at 100 they would wait for nobody."""


class Load(Rate):
    """The rate of records, high or not."""

    is_high = False
    """Were there many in the last span?"""

    def look(self, now_s: float) -> bool:
        """Is a span over? Then what came in it is the rate, high or not."""
        is_over = super().look(now_s)
        if is_over:
            self.is_high = self.per_s >= MANY_PER_S
        return is_over
