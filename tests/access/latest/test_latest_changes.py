"""The changes of latest values between two cursors."""

from __future__ import annotations

import random

import orjson
import pytest

from edgewake.cloud.access.latest import latest_changes
from edgewake.cloud.access.latest.latest import Latest
from edgewake.cloud.access.latest.latest_changes import Change, Changes, folded, told
from edgewake.cloud.log.decode import DATA, Event
from tests.access.latest.copies import Copy, apply, rows_of


def change(n: int, key: str, before: bytes | None, after: bytes | None) -> Change:
    return Change((0, (n, 0)), key, before, after)


def everything(data: bytes) -> bytes:
    return data


def test_of_each_key_one_change_is_told_from_what_it_was_to_what_it_is() -> None:
    found = folded(
        [
            change(1, "a", None, b"1"), change(2, "b", b"1", b"2"), change(3, "a", b"1", b"2"),
            change(4, "c", None, b"1"), change(5, "c", b"1", None), change(6, "d", b"1", None),
        ]
    )  # fmt: skip
    assert [told(one, everything) for one in found] == [
        b'{"op":"insert","key":"a","row":2}',
        b'{"op":"update","key":"b","row":2}',
        None,
        b'{"op":"delete","key":"d"}',
    ]


def test_a_row_enters_and_leaves_a_filter() -> None:
    def large(data: bytes) -> bytes | None:
        return data if int(data) > 5 else None

    assert told(change(1, "a", b"1", b"9"), large) == b'{"op":"insert","key":"a","row":9}'
    assert told(change(1, "a", b"9", b"1"), large) == b'{"op":"delete","key":"a"}'
    assert told(change(1, "a", b"1", b"2"), large) is None


def test_what_is_kept_no_longer_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_changes, "KEPT_MAX", 2)
    changes = Changes()
    assert changes.after([(0, 0)]) is None
    changes.begin([(3, 0)])
    assert changes.after([(2, 9)]) is None
    assert changes.after([(3, 0)]) == []
    for n in range(4, 8):
        changes.add(change(n, str(n), None, b"1"))
    assert changes.after([(4, 0)]) is None
    assert [one.key for one in changes.after([(5, 0)]) or ()] == ["6", "7"]
    assert [one.key for one in changes.after([(6, 0)]) or ()] == ["7"]


class Counted(tuple[int, int]):
    """A position that counts how often one is compared."""

    times = 0

    def __gt__(self, other: object) -> bool:
        Counted.times += 1
        return tuple(self) > other  # type: ignore[operator]


def test_who_asks_again_looks_at_what_came_since_and_at_no_more() -> None:
    """It looked at all ten thousand: a hundred who waited took ten processors."""
    changes = Changes()
    changes.begin([(0, 0), (0, 0)])
    changes.add(Change((1, (1, 0)), "rare", None, b"1"))
    for n in range(1, 5_001):
        changes.add(Change((0, Counted((n, 0))), str(n % 7), None, b"1"))
    assert Counted.times == 0
    found = changes.after([(4_998, 0), (1, 0)])
    assert [one.at for one in found or ()] == [(0, (4_999, 0)), (0, (5_000, 0))]
    assert Counted.times <= 3
    everything_kept = changes.after([(0, 0), (0, 0)])
    assert [one.key for one in everything_kept or ()][:2] == ["rare", "1"], "in their order"


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_copy_is_what_the_rows_are_whatever_happened(
    monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """From any place behind which all is known, by the changes that are kept and by the rows."""
    if not is_kept:
        monkeypatch.setattr(latest_changes, "KEPT_MAX", 0)
    rng = random.Random(7)
    latest = Latest(("key",))
    latest.changes.begin([(0, 0)])
    snapshots: list[Copy] = []
    for n in range(1, 400):
        fields = {
            "key": rng.randrange(12), "window_start": n // 40, "revision": n,
            "withdrawn": rng.random() < 0.3, "n": n,
        }  # fmt: skip
        latest.take(Event(DATA, fields, orjson.dumps(fields)), (0, (n, 0)))
        snapshots.append({e.key: orjson.loads(e.data) for e in rows_of(latest)})
    for place in range(0, 399, 7):
        copy = dict(snapshots[place - 1]) if place else {}
        kept = latest.changes.after([(place, 0)])
        assert (kept is None) is not is_kept
        if kept is not None:
            words = [told(one, everything) for one in kept]
        else:
            words = [
                latest_changes.told_of_row(one.key, one.data, everything, is_new=one.is_new)
                for piece in latest.changed_since([(place, 0)])
                for one in piece
            ]
        for word in words:
            if word is not None:
                apply(copy, orjson.loads(word), is_strict=is_kept)
        assert copy == snapshots[-1]
