"""Rules, alerts and notes together: what is told, when, to whom, and what is written."""

from __future__ import annotations

import itertools

from edgewake.cloud.alerts import telling
from edgewake.cloud.alerts.book import ALERTS_EACH_MAX, Book
from edgewake.protocol.ops.alert import Note, NoteState, Rule, State, Word
from tests.alerts.build import at, rule, seen


def book(*rules: Rule) -> Book:
    numbers = itertools.count(1)
    made = Book(lambda: f"id-{next(numbers)}")
    made.set_rules({one.name: one for one in rules}, at(0))
    return made


def reloaded(before: Book, rows: dict[str, bytes]) -> Book:
    for row, value in before.take_changes().items():
        if value is None:
            rows.pop(row, None)
        else:
            rows[row] = value
    numbers = itertools.count(1)
    after = Book(lambda: f"later-{next(numbers)}")
    for row, value in rows.items():
        after.load(row, value)
    after.set_rules(before.rules, at(0))
    return after


def told(a_book: Book) -> list[Note]:
    return sorted(a_book.notes.values(), key=lambda one: one.made_at)


def test_what_begins_within_the_groups_time_is_one_note():
    hot = rule(tell=("oncall",), group_s=10)
    a_book = book(hot)
    a_book.see(hot, seen(0, True, "car-1"))
    a_book.see(hot, seen(5, True, "car-2"))
    a_book.tick(at(9))
    assert told(a_book) == []
    a_book.tick(at(10))
    (note,) = told(a_book)
    assert note.firing == ("car-1", "car-2")
    assert note.title == "hot: 2 firing"
    a_book.tick(at(100))
    assert told(a_book) == [note], "nothing is told twice"


def test_one_that_is_over_before_it_is_told_is_never_told():
    hot = rule(tell=("oncall",), group_s=10)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    a_book.see(hot, seen(5, False))
    a_book.tick(at(60))
    assert told(a_book) == []


def test_the_end_is_told_once_too_and_each_destination_has_its_note():
    hot = rule(tell=("oncall", "room"), group_s=0)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    a_book.tick(at(0))
    a_book.see(hot, seen(50, False))
    a_book.tick(at(50))
    assert [(note.destination, note.title) for note in told(a_book)] == [
        ("oncall", "hot: 1 firing"),
        ("room", "hot: 1 firing"),
        ("oncall", "hot: 1 over"),
        ("room", "hot: 1 over"),
    ]


def test_what_still_fires_is_told_again_until_somebody_takes_it():
    hot = rule(tell=("oncall",), group_s=0, again_s=600)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    for second in range(0, 1300, 100):
        a_book.tick(at(second))
    assert [note.made_at for note in told(a_book)] == [at(0), at(600), at(1200)]
    word = Word(id="1", rule="hot", key=None, what="acknowledge", who="ann", at=at(1300))
    a_book.hear(word)
    a_book.tick(at(5000))
    assert len(told(a_book)) == 3


def test_a_book_that_is_read_again_goes_on_where_the_other_was():
    hot, rows = rule(tell=("oncall",), group_s=10), {}
    first = book(hot)
    first.see(hot, seen(0, True))
    first.tick(at(1))
    second = reloaded(first, rows)
    second.tick(at(10))
    third = reloaded(second, rows)
    third.tick(at(20))
    assert [note.id for note in told(third)] == ["later-1"]
    assert third.alerts["hot"]["car-1"].told == "firing"


def test_a_new_value_alone_is_written_now_and_then_only():
    hot = rule()
    a_book = book(hot)
    a_book.see(hot, seen(0, True, value="31"))
    assert list(a_book.take_changes()) == ["alert|hot|car-1"]
    a_book.see(hot, seen(1, True, value="32"))
    assert a_book.take_changes() == {}
    assert a_book.alerts["hot"]["car-1"].value == "32"
    a_book.see(hot, seen(11, True, value="33"))
    assert list(a_book.take_changes()) == ["alert|hot|car-1"]


def test_the_alerts_of_a_rule_have_a_bound_and_those_that_are_over_make_room():
    hot = rule()
    a_book = book(hot)
    for number in range(ALERTS_EACH_MAX + 5):
        a_book.see(hot, seen(0, True, f"car-{number}"))
    assert len(a_book.alerts["hot"]) == ALERTS_EACH_MAX
    assert a_book.left_out == {"hot"}
    a_book.see(hot, seen(1, False, "car-3"))
    a_book.see(hot, seen(2, True, "new"))
    assert "new" in a_book.alerts["hot"]


def test_a_rule_that_looks_elsewhere_ends_its_alerts_and_one_that_is_gone_takes_them_along():
    hot = rule(tell=("oncall",), group_s=0)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    a_book.tick(at(0))
    a_book.set_rules({"hot": rule(stream="cellar", tell=("oncall",), group_s=0)}, at(5))
    a_book.tick(at(5))
    assert a_book.alerts["hot"]["car-1"].state is State.RESOLVED
    assert [note.title for note in told(a_book)] == ["hot: 1 firing", "hot: 1 over"]
    a_book.take_changes()
    a_book.set_rules({}, at(6))
    assert a_book.take_changes() == {"alert|hot|car-1": None}


def test_levels_end_what_they_do_not_name():
    silent = rule(silent_s=60)
    a_book = book(silent)
    a_book.see_all(silent, {"a": seen(0, True, "a"), "b": seen(0, True, "b")}, at(0))
    a_book.see_all(silent, {"b": seen(5, True, "b")}, at(5))
    states = {key: one.state for key, one in a_book.alerts["hot"].items()}
    assert states == {"a": State.RESOLVED, "b": State.FIRING}


def test_a_note_is_tried_later_and_later_and_given_up_after_a_day():
    hot = rule(tell=("oncall",), group_s=0)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    a_book.tick(at(0))
    now, waits = at(0), []
    while (note := told(a_book)[0]).state is NoteState.WAITING:
        now = max(now, note.next_at)
        (begun,) = a_book.begin(now)
        assert a_book.begin(now) == [], "one attempt at a time"
        a_book.end(begun.id, now, "away", is_final=False)
        waits.append(told(a_book)[0].next_at - now)
    assert waits[:5] == list(telling.RETRY_MS)
    assert now - at(0) >= telling.GIVE_UP_MS
    assert note.error == "away"


def test_an_attempt_under_way_is_not_begun_by_who_judges_next_before_its_time():
    hot, rows = rule(tell=("oncall",), group_s=0), {}
    first = book(hot)
    first.see(hot, seen(0, True))
    first.tick(at(0))
    (begun,) = first.begin(at(0))
    second = reloaded(first, rows)
    assert second.begin(at(0) + telling.ATTEMPT_MS - 1) == []
    (again,) = second.begin(at(0) + telling.ATTEMPT_MS)
    assert (again.id, again.attempts) == (begun.id, 2)


def test_a_destination_that_hangs_keeps_no_other_waiting():
    rules = [rule(name=f"r{n}", tell=("hangs",), group_s=0) for n in range(5)]
    rules.append(rule(name="other", tell=("works",), group_s=0))
    a_book = book(*rules)
    for one in rules:
        a_book.see(one, seen(0, True))
    a_book.tick(at(0))
    begun = [note.destination for note in a_book.begin(at(0))]
    assert sorted(begun) == ["hangs", "hangs", "works"]


def test_a_note_about_the_past_is_made_now_and_tried_for_a_day() -> None:
    """A judge that catches up with a weekend gives nothing up at the first failure."""
    hot = rule(tell=("oncall",), group_s=0)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    back = at(2 * 86_400)
    a_book.tick(at(60), back)
    (note,) = a_book.begin(back)
    assert note.made_at == back
    a_book.end(note.id, back + 1000, "not there yet", is_final=False)
    assert a_book.notes[note.id].state is NoteState.WAITING


def test_who_catches_up_keeps_the_quiet_hours_of_the_present() -> None:
    """T0 is 14:13 UTC: what began before the quiet hours waits for their end."""
    night = {"name": "night", "begins": "22:00", "ends": "06:00"}
    hot = rule(tell=("oncall",), group_s=0, quiet=night)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    a_book.tick(at(60), at(12 * 3600))
    assert told(a_book) == []
    a_book.tick(at(16 * 3600))
    assert len(told(a_book)) == 1


def test_who_catches_up_does_not_remind_of_each_hour_that_passed() -> None:
    hot = rule(tell=("oncall",), group_s=0, again_s=3600)
    a_book = book(hot)
    a_book.see(hot, seen(0, True))
    for hour in range(13):
        a_book.tick(at(60 + hour * 3600), at(12 * 3600))
    assert len(told(a_book)) == 1
    a_book.tick(at(13 * 3600))
    assert len(told(a_book)) == 2


def test_a_silence_is_told_while_readings_of_the_past_are_judged() -> None:
    quiet = rule(tell=("oncall",), silent_s=60, by=("device",))
    a_book = book(quiet)
    a_book.see_all(quiet, {"car-1": seen(7200, True)}, at(7200))
    a_book.tick(at(60), at(7211))
    assert [note.firing for note in told(a_book)] == [("car-1",)]
