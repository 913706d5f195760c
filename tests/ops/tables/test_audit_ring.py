"""The audit list: who did what, the newest first, with a bound."""

from __future__ import annotations

from edgewake.cloud.ops.tables.audit_ring import Audited, AuditRing


def entry(number: int) -> Audited:
    return Audited(at=number, holder="ann", method="PUT", path=f"/{number}", status=200)


def test_the_newest_are_kept_and_one_that_is_read_again_is_listed_once() -> None:
    ring = AuditRing(entries_max=3)
    for number in (1, 2, 3, 4, 4, 5, 3):
        ring.take(number, entry(number))
    assert [one.path for one in ring.newest(before=None, limit=2)] == ["/5", "/4"]
    assert [one.number for one in ring.newest(before=None, limit=10)] == [5, 4, 3]
    assert [one.number for one in ring.newest(before=5, limit=1)] == [4]
    assert ring.next == 6
