"""From where on a repair reads the log and below which the lake, and what it refuses: no Kafka, no
Spark.
"""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.checkpoints.log_reader import Overtaken
from edgewake.cloud.analysis.repair.past import Kept, needed_day, seam
from edgewake.cloud.lake.manifest import Contents, File, Place
from edgewake.cloud.lake.shape import Kind

TOPIC = "ew.s.s"
DAY_MS = 86_400_000
BEGIN = 20_000 * DAY_MS + DAY_MS // 2
OLDER, SAME = needed_day(BEGIN - DAY_MS), needed_day(BEGIN)


def lake(first_day: str, *next_: int, gaps: int = 0, topic_id: str = "id") -> Contents:
    """With two files, that reaches these offsets."""
    files = [
        File(
            path=f"{day}.parquet",
            kind=Kind.STREAM,
            name="s",
            topic=TOPIC,
            date=day,
            rows=1,
            bytes=1,
            fields={},
            written_at=0,
        )
        for day in (SAME, first_day)
    ]
    return Contents(
        files, {(TOPIC, partition): Place(topic_id, at) for partition, at in enumerate(next_)}, gaps
    )


KEPT = Kept("id", {0: (10, 50), 1: (0, 0)})


def test_the_lake_is_read_up_to_where_it_reaches_whatever_the_log_still_has() -> None:
    def never() -> dict[int, int]:
        raise AssertionError("an older day tells that nothing was given up")

    assert seam(TOPIC, lake(OLDER, 30), KEPT, BEGIN, never) == {0: 30, 1: 0}
    assert seam(TOPIC, lake(SAME, 10), KEPT, BEGIN, lambda: {0: 0}) == {0: 10, 1: 0}


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        (lake(OLDER, 30, gaps=4), "lacks 4 records"),
        (lake(OLDER, 9), "before offset 10, and the lake has them up to 9"),
        (lake(OLDER), "up to 0"),
        (lake(OLDER, 51), "up to 51"),
        (lake(OLDER, 30, topic_id="another"), "up to 0"),
        (lake(SAME, 30), "may lack some before the end of"),
    ],
)
def test_what_neither_has_is_said(contents: Contents, sentence: str) -> None:
    with pytest.raises(Overtaken, match=sentence):
        seam(TOPIC, contents, KEPT, BEGIN, lambda: {0: 3})
