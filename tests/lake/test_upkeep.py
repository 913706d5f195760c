"""Which files are merged and given up."""

from __future__ import annotations

from typing import Any

from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import ColumnType, Kind
from edgewake.cloud.lake.upkeep import MERGE_FILES, MERGE_ROWS_MAX, to_drop, to_merge
from edgewake.protocol import topics

TODAY = "2026-11-22"


def files(count: int, **more: Any) -> list[File]:
    values: dict[str, Any] = {
        "date": TODAY,
        "rows": 10,
        "bytes": 100,
        "fields": {"a": ColumnType.NUMBER},
        "topic": "ew.s.s",
        "kind": Kind.STREAM,
    } | more
    fields = sorted(values["fields"].values())
    prefix = f"{values['topic']}-{values['date']}-{values.get('level')}-{values['rows']}-{fields}"
    return [File(path=f"{prefix}-{i:03d}", name="s", written_at=i, **values) for i in range(count)]


def test_files_of_today_are_merged_when_there_are_enough_of_one_level() -> None:
    assert to_merge(files(MERGE_FILES - 1), today=TODAY) == []
    assert to_merge(files(MERGE_FILES) + files(3, level=1), today=TODAY) == [files(MERGE_FILES)]


def test_what_is_left_of_a_day_that_is_over_becomes_one() -> None:
    left = files(2, date="2026-11-21") + files(2, date="2026-11-21", level=2)
    assert to_merge(left, today=TODAY) == [left]
    assert to_merge(left[:1], today=TODAY) == []


def test_a_merged_file_has_one_type_for_a_field_and_not_too_many_rows() -> None:
    numbers, texts = files(MERGE_FILES), files(MERGE_FILES, fields={"a": ColumnType.STRING})
    assert to_merge(numbers + texts, today=TODAY) == [numbers]
    assert to_merge(files(MERGE_FILES, rows=MERGE_ROWS_MAX // 2), today=TODAY) == []
    large = to_merge(files(MERGE_FILES, rows=MERGE_ROWS_MAX // 4), today=TODAY)
    assert [len(group) for group in large] == [4]


def test_the_oldest_days_go_by_age_and_then_by_bytes() -> None:
    old, before, today = files(1, date="2026-10-01"), files(2, date="2026-11-20"), files(2)
    assert to_drop(today + before + old, today=TODAY, days=30, bytes_max=10_000) == old
    assert to_drop(today + before + old, today=TODAY, days=30, bytes_max=250) == old + before


def test_summaries_stay_as_long_as_their_topics_keep_them_and_go_last() -> None:
    hours = files(1, date="2026-01-02", topic=topics.HOURS, kind=Kind.SUMMARY)
    ancient = files(1, date="2025-10-10", topic=topics.HOURS, kind=Kind.SUMMARY)
    days = files(1, date="2020-01-01", topic=topics.DAYS, kind=Kind.SUMMARY)
    today = files(2)
    assert (
        to_drop(hours + ancient + days + today, today=TODAY, days=30, bytes_max=10_000) == ancient
    )
    assert (
        to_drop(hours + ancient + days + today, today=TODAY, days=30, bytes_max=250)
        == ancient + today[:2]
    )
    assert to_drop(hours + days + today, today=TODAY, days=30, bytes_max=150) == [*today, *days]


def test_a_clock_that_jumps_ahead_deletes_nothing() -> None:
    old, today = files(1, date="2026-11-01"), files(2)
    assert to_drop(today + old, today="2099-01-01", days=30, bytes_max=10_000) == []
    assert (
        to_drop(today + old + files(1, date="2098-12-31"), today=TODAY, days=30, bytes_max=10_000)
        == []
    ), "nor that of a bridge"
