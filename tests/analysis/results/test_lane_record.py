"""From where a lane goes on, and of which windows a query may lack readings."""

from __future__ import annotations

from typing import Any

from edgewake.cloud.analysis.results.lane_record import (
    CLOCKS_APART_MS,
    LaneRecord,
    begin,
    without_recreated_topic,
)

NOW = 1_790_000_000_000
SAFE = NOW + CLOCKS_APART_MS
CUT = NOW - 3_600_000
NEW = LaneRecord(stream="s", lane="plain")
AT = {"ew.s.s": {0: 50, 1: 60}}
RECORD = NEW.model_copy(
    update={
        "revision": 14,
        "top": 99,
        "offsets": AT,
        "joined_at_offsets": {"q@1": {}},
        "late": {"q@1": 3},
    }
)


def after(
    record: LaneRecord, *labels: str, has_checkpoint: bool = True, cut_to: int | None = None
) -> LaneRecord:
    return begin(record, labels, has_checkpoint=has_checkpoint, cut_to=cut_to, now_ms=NOW)


def fields(record: LaneRecord) -> dict[str, Any]:
    return record.model_dump(include={"joined_at_offsets", "complete_from"})


def test_the_first_queries_of_a_stream_are_asked_for_all_that_it_keeps() -> None:
    assert fields(after(NEW, "a@1", has_checkpoint=False)) == {
        "joined_at_offsets": {"a@1": {}},
        "complete_from": {},
    }
    cut = after(NEW, "a@1", has_checkpoint=False, cut_to=CUT)
    assert cut.complete_from == {"a@1": CUT}, "retention deleted the first ones"


def test_a_query_that_joins_lacks_the_readings_before_it_and_the_others_lack_nothing() -> None:
    assert fields(after(RECORD, "q@1", "b@2")) == {
        "joined_at_offsets": {"q@1": {}, "b@2": AT},
        "complete_from": {"b@2": SAFE},
    }


def test_a_query_that_was_away_lacks_what_came_meanwhile() -> None:
    """Paused and resumed beside another one."""
    paused = after(RECORD, "b@2")
    assert paused.late == {}
    assert after(paused, "q@1", "b@2").complete_from == {"b@2": SAFE, "q@1": SAFE}


def test_a_lane_goes_on_where_it_stopped() -> None:
    assert after(RECORD, "q@1") == RECORD
    assert after(RECORD, "q@1", has_checkpoint=False) == RECORD, (
        "a lost state is built again from the stream"
    )


def test_what_retention_took_while_the_state_was_away_is_lacking_for_all() -> None:
    assert after(RECORD, "q@1", has_checkpoint=False, cut_to=CUT).complete_from == {"q@1": CUT}


def test_what_a_query_lacked_before_it_lacks_after_retention_took_more_or_less() -> None:
    joined = after(RECORD, "q@1", "b@2")
    assert after(joined, "q@1", "b@2", has_checkpoint=False, cut_to=CUT).complete_from == {
        "q@1": CUT,
        "b@2": SAFE,
    }


def test_queries_without_a_predecessor_begin_at_the_first_reading_with_higher_revisions() -> None:
    found = after(RECORD, "b@2", has_checkpoint=False)
    assert (found.offsets, found.top, found.revision, found.complete_from) == ({}, None, 14, {})


def test_a_lane_of_summaries_has_no_queries_and_forgets_nothing() -> None:
    summaries = RECORD.model_copy(update={"joined_at_offsets": {}, "late": {}})
    assert after(summaries, has_checkpoint=False) == summaries


def test_a_topic_that_was_made_anew_is_computed_from_its_beginning() -> None:
    assert without_recreated_topic(RECORD, "ew.s.s", {0: 50, 1: 61}) == RECORD
    assert without_recreated_topic(RECORD, "ew.s.s", {0: 50, 1: 3}).offsets == {}
    assert without_recreated_topic(RECORD, "ew.s.s", {}) == RECORD, (
        "where there is a checkpoint nobody asks for the ends"
    )
