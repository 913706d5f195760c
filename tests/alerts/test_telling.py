"""Which notes are made, when each is tried, and when it is forgotten."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.alerts import telling
from edgewake.cloud.alerts.telling import (
    begun,
    due,
    forgotten,
    news,
    notes_of,
    told,
    tried,
    unit_of,
)
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.alert import Alert, Note, NoteState, Severity, State
from edgewake.protocol.ops.query import Progress, QueryState
from tests.alerts.build import at, rule

DAY = 86_400


def alert(key: str = "car-1", state: State = State.FIRING, since: float = 0, **more: Any) -> Alert:
    return Alert(
        rule="hot",
        key=key,
        basis="b",
        state=state,
        since=at(since),
        began=at(since),
        last_at=at(since),
        **more,
    )


def note(number: int = 0, destination: str = "a", **more: Any) -> Note:
    return Note.model_validate(
        {
            "id": str(number),
            "rule": "hot",
            "destination": destination,
            "title": "t",
            "body": "b",
            "severity": Severity.INFO,
            "made_at": at(0),
            "next_at": at(0),
        }
        | more
    )


def test_who_is_snoozed_is_told_when_the_snooze_and_the_group_are_over() -> None:
    waiting, hot = alert(snoozed_until=at(100)), rule(group_s=10)
    assert [len(news([waiting], hot, at(second))) for second in (99, 109, 110)] == [0, 0, 1]


def test_what_a_rule_over_a_query_reports_has_the_unit_of_the_field_whose_values_it_has() -> None:
    info = FieldInfo(type=FieldType.NUMBER, unit="°C")
    streams = {"room": Stream(name="room", fields={"temperature": info})}
    said = Progress(
        query="warm",
        stream="room",
        state=QueryState.RUNNING,
        measures={"mean": ("room.temperature",)},
        updated_at=0,
    )

    def unit(**rule_of: Any) -> str:
        return unit_of(rule(**rule_of), streams, {"warm": said})

    assert unit(stream="room", value="temperature") == "°C"
    assert unit(query="warm", stream=None, value="mean") == "°C"
    assert unit(query="warm", stream=None, value="readings") == ""
    assert unit(query="unknown", stream=None, value="mean") == ""


def test_a_reminder_does_not_wait_for_the_group_of_others() -> None:
    hot = rule(group_s=60, again_s=30)
    known, fresh = alert("old", told="firing", told_at=at(0)), alert("new", since=29)
    assert [one.key for one in news([fresh, known], hot, at(30))] == ["old"]
    assert [one.key for one in news([fresh, known], hot, at(89))] == ["new", "old"]


def test_what_was_told_is_no_news_until_it_changes() -> None:
    hot, now = rule(group_s=0), at(5)
    known = told(alert(), now)
    assert (known.told, known.told_at, known.history[-1].what) == ("firing", now, "told")
    assert news([known], hot, at(DAY)) == []
    over = known.model_copy(update={"state": State.RESOLVED, "since": at(9)})
    assert news([over], hot, at(9)) == [over]
    assert news([told(over, at(9))], hot, at(DAY)) == []


def test_a_note_names_some_and_counts_the_rest_for_each_destination() -> None:
    over = alert("ü", State.RESOLVED, told="firing", value="7")
    flaps = alert("f", State.RESOLVED, told="firing", flapping=True)
    alerts = [over, flaps, *(alert(f"car-{n}") for n in range(telling.NAMED_MAX))]
    numbers = count()
    first, second = notes_of(
        alerts, rule(tell=("a", "b"), text="Look!"), at(1), lambda: str(next(numbers))
    )
    assert first.model_copy(update={"id": "1", "destination": "b"}) == second
    assert first.title == "hot: 21 firing, 1 over"
    assert (len(first.firing), first.resolved, first.more) == (telling.NAMED_MAX, (), 2)
    lines = first.body.split("\n")
    assert (lines[0], lines[-1]) == ("Look!", "… and 2 more")
    assert lines[1] == "f: flaps: it begins and ends again and again"
    assert lines[2] == "car-0: firing since 2026-09-21 14:13:20 UTC"
    (alone,) = notes_of([over], rule(tell=("a",)), at(1), lambda: "x")
    assert alone.body == "ü: 7 over since 2026-09-21 14:13:20 UTC"
    (named,) = notes_of([over], rule(tell=("a",), value="heat"), at(1), lambda: "x")
    assert named.body == "ü: heat 7 over since 2026-09-21 14:13:20 UTC"
    (united,) = notes_of([over], rule(tell=("a",), value="heat"), at(1), lambda: "x", "°C")
    assert united.body == "ü: heat 7 °C over since 2026-09-21 14:13:20 UTC"
    assert (united.field, united.unit, united.values) == ("heat", "°C", {"ü": "7"})
    assert list(notes_of(alerts, rule(), at(1), lambda: "x")) == []


@pytest.mark.parametrize("since", [-1, 253_402_300_799_999, 2**62, 2**80])
def test_a_time_that_no_calendar_has_ends_nobody(since: int) -> None:
    """A producer that is not ours may write any time to a topic."""
    (made,) = notes_of(
        [alert().model_copy(update={"since": since})], rule(tell=("a",)), at(1), lambda: "x"
    )
    assert made.body.startswith("car-1: firing since ")


notes = st.lists(
    st.builds(
        note,
        st.just(0),
        st.sampled_from("abcdef"),
        next_at=st.integers(-2, 2).map(at),
        error=st.sampled_from(["", "refused"]),
        state=st.sampled_from([NoteState.WAITING, NoteState.WAITING, NoteState.SENT]),
    ),
    max_size=30,
).map(lambda found: [one.model_copy(update={"id": str(n)}) for n, one in enumerate(found)])


@given(notes, st.sets(st.integers(0, 29), max_size=8))
def test_what_is_tried_keeps_every_bound_and_none_is_left_that_would_fit(
    found: list[Note], running: set[int]
) -> None:
    under_way = {one.id: one.destination for one in found if int(one.id) in running}
    chosen = list(due(found, under_way, at(0)))
    waits = [one for one in found if one.state is NoteState.WAITING]
    failing = telling._failing(found)  # those of which the last note was given up, too
    each = Counter([*under_way.values(), *(one.destination for one in chosen)])
    ran = Counter(under_way.values())
    assert all(one.next_at <= at(0) and one.id not in under_way for one in chosen)
    assert len(chosen) <= max(0, telling.AT_ONCE_MAX - len(under_way))
    assert all(
        each[one.destination] <= telling.AT_ONCE_EACH_MAX
        or ran[one.destination] == each[one.destination]
        for one in chosen
    )
    again = sum(each[destination] for destination in failing)
    new_again = sum(one.destination in failing for one in chosen)
    assert new_again == 0 or again <= telling.AT_ONCE_FAILING_MAX
    for left in waits:
        if left.next_at > at(0) or left.id in under_way or left in chosen:
            continue
        assert (
            len(under_way) + len(chosen) >= telling.AT_ONCE_MAX
            or each[left.destination] >= telling.AT_ONCE_EACH_MAX
            or (left.destination in failing and again >= telling.AT_ONCE_FAILING_MAX)
        )


def test_of_two_notes_done_at_one_time_the_same_one_is_the_last_whatever_their_order() -> None:
    """It says whether their destination fails."""
    refused = note(0, "a", next_at=at(1), error="refused", state=NoteState.SENT)
    sent = note(1, "a", next_at=at(0), error="", state=NoteState.SENT)
    assert telling._failing([refused, sent]) == telling._failing([sent, refused]) == set()


def test_a_note_waits_longer_after_each_failure_until_it_is_given_up() -> None:
    one, now, waits = note(), at(0), []
    while one.state is NoteState.WAITING:
        one = begun(one, now)
        assert one.next_at == now + telling.ATTEMPT_MS
        one = tried(one, now, "refused")
        if one.state is NoteState.WAITING:
            waits.append(one.next_at - now)
            now = one.next_at
    assert tuple(waits[: len(telling.RETRY_MS)]) == telling.RETRY_MS
    assert set(waits[len(telling.RETRY_MS) :]) == {telling.RETRY_MS[-1]}
    assert (one.state, one.error) == (NoteState.GIVEN_UP, "refused")
    assert telling.GIVE_UP_MS <= one.done_at - one.made_at < telling.GIVE_UP_MS + 900_000


def test_a_destination_that_has_it_or_never_will_is_tried_no_more() -> None:
    failed = tried(begun(note(), at(0)), at(0), "away")
    sent = tried(failed, at(9), None)
    assert (sent.state, sent.error, sent.done_at) == (NoteState.SENT, "", at(9))
    final = tried(failed, at(9), "no such address", is_final=True)
    assert (final.state, final.error) == (NoteState.GIVEN_UP, "no such address")
    assert list(due([sent, final], {}, at(DAY))) == []


def test_done_notes_are_forgotten_when_they_are_old_or_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telling, "DONE_MAX", 3)
    done = [note(n, state=NoteState.SENT, done_at=at(n)) for n in range(5)]
    assert list(forgotten([note(9), *done[::-1]], at(9))) == ["0", "1"]
    assert list(forgotten([note(9), *done[3:]], at(DAY + 4))) == ["3"]
