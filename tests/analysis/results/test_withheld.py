"""Rows that are told once, when their window is final: nothing lost, nothing twice, whoever goes on
and whatever comes late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.results import emit, withheld
from edgewake.cloud.analysis.results.emit import Batch, Broken, Output, Outputs
from edgewake.cloud.analysis.results.withheld import Withheld, parted
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol import topics
from edgewake.protocol.errors import QueryError
from edgewake.protocol.ops import result

T0 = 1_790_000_040_000
MINUTE = 60_000
TEXT = (
    "-- name: {}\n-- lateness: 30 seconds\n{}SELECT device, count(*) AS n FROM s GROUP BY "
    "window(event_time, '1 minute'), device"
)


def query(name: str = "q", headers: str = "-- emit: final\n") -> Registered:
    return Registered(parse(TEXT.format(name, headers)), 7)


def row(
    of: Registered,
    minute: int,
    n: int,
    revision: int,
    *,
    device: str = "d",
    more: str = "",
    is_final: bool = False,
) -> Output:
    """A result as finish.py makes it."""
    start, end = T0 + minute * MINUTE, T0 + (minute + 1) * MINUTE
    values = more or f'"n":{n}'
    text = (
        f'{{"query":"{of.query.name}","window_start":{start},"window_end":{end},'
        f'"device":{orjson.dumps(device).decode()},{values}'
    )
    value = f'{text},"revision":{revision},"final":{str(is_final).lower()}}}'
    return Output(
        of.topic,
        result.result_key(start, end, orjson.dumps({"device": device}).decode()),
        value.encode(),
    )


def batch(revision: int, top: int | None, before: int | None = None) -> Batch:
    return Batch(revision=revision, top_before=before, top=top)


class Log:
    """What Kafka has after each transaction."""

    def __init__(self, of: Registered) -> None:
        self.of = of
        self.rows: dict[str, bytes] = {}
        self.told: list[dict[str, Any]] = []
        self.watermarks: list[int] = []
        self.broken: Broken = {}

    def step(self, held: Withheld, outputs: Iterable[Output | Outputs], of_batch: Batch) -> None:
        for one in emit.each(
            held.through([*outputs, *emit.watermarks([self.of], of_batch)], of_batch, self.broken)
        ):
            if one.topic == topics.WINDOWS:
                if one.value is None:
                    del self.rows[one.key.decode()]
                else:
                    self.rows[one.key.decode()] = one.value
            elif result.is_watermark(one.key):
                self.watermarks.append(orjson.loads(one.value or b"")["watermark"])
            else:
                found = orjson.loads(one.value or b"")
                is_opened_again = self.of.query.reopen_ms > 0
                assert is_opened_again or found["window_end"] > max(self.watermarks, default=0), (
                    "rows come before their watermark"
                )
                self.told.append(found)

    def again(self) -> Withheld:
        """Who goes on with what Kafka has."""
        return Withheld([self.of], self.rows)


def test_a_row_is_told_once_when_its_window_is_final_and_before_the_watermark() -> None:
    of = query()
    log = Log(of)
    held = Withheld([of])
    log.step(held, [row(of, 0, 1, 0), row(of, 1, 1, 0)], batch(0, T0 + MINUTE))
    log.step(held, [row(of, 0, 2, 1)], batch(1, T0 + MINUTE + 29_000, T0 + MINUTE))
    assert log.told == []
    assert len(log.rows) == 2
    log.step(held, [], batch(2, T0 + MINUTE + 30_000, T0 + MINUTE + 29_000))
    assert [(one["window_start"], one["n"], one["revision"], one["final"]) for one in log.told] == [
        (T0, 2, 2, True)
    ]
    assert log.watermarks[-1] == T0 + MINUTE
    assert len(log.rows) == 1


def test_a_row_emitted_as_its_window_becomes_final_replaces_the_withheld_one() -> None:
    of = query()
    log, held = Log(of), Withheld([of])
    log.step(held, [row(of, 0, 1, 0)], batch(0, T0))
    log.step(
        held, [row(of, 0, 5, 1, is_final=True), row(of, 9, 1, 1)], batch(1, T0 + 9 * MINUTE, T0)
    )
    assert [(one["n"], one["revision"]) for one in log.told] == [(5, 1)]
    assert len(log.rows) == 1


def test_what_is_withdrawn_before_it_was_told_is_never_told() -> None:
    of = query()
    log, held = Log(of), Withheld([of])
    log.step(held, [row(of, 0, 1, 0)], batch(0, T0))
    log.step(held, [row(of, 0, 0, 1, more='"withdrawn":true')], batch(1, T0, T0))
    log.step(
        held,
        [row(of, 1, 0, 2, more='"withdrawn":true', is_final=True)],
        batch(2, T0 + 9 * MINUTE, T0),
    )
    assert (log.told, log.rows) == ([], {})


def test_a_reopened_window_s_correction_is_emitted_also_where_it_withdraws_the_row() -> None:
    of = query(headers="-- emit: final\n-- reopen: 1 day\n")
    log, held = Log(of), Withheld([of])
    log.step(held, [row(of, 0, 1, 0)], batch(0, T0))
    log.step(held, [], batch(1, T0 + 9 * MINUTE, T0))
    log.step(held, [row(of, 0, 2, 2, is_final=True)], batch(2, T0 + 9 * MINUTE, T0 + 9 * MINUTE))
    log.step(
        held,
        [row(of, 0, 0, 3, more='"withdrawn":true', is_final=True)],
        batch(3, T0 + 9 * MINUTE, T0 + 9 * MINUTE),
    )
    assert [(one.get("n"), one["revision"]) for one in log.told] == [(1, 1), (2, 2), (None, 3)]


def test_queries_that_tell_each_change_are_left_as_they_are() -> None:
    final, each = query("f"), query("e", "")
    outputs: list[Output | Outputs] = [
        Outputs(each.topic, [b"k"], [b"v"]),
        row(each, 0, 1, 0),
        row(final, 0, 1, 0),
    ]
    found = list(Withheld([final, each]).through(outputs, batch(0, T0), {}))
    assert found[:2] == outputs[:2]
    assert [one.topic for one in found[2:] if isinstance(one, Output)] == [topics.WINDOWS]


def test_a_text_that_looks_like_the_end_of_a_row_is_none() -> None:
    of = query()
    device = ',"revision":1,"final":true'
    log, held = Log(of), Withheld([of])
    log.step(held, [row(of, 0, 1, 0, device=device)], batch(0, T0))
    assert log.told == []
    log.step(held, [], batch(1, T0 + 9 * MINUTE, T0))
    assert [(one["device"], one["final"]) for one in log.told] == [
        (',"revision":1,"final":true', True)
    ]


def test_more_than_may_be_held_back_ends_the_query_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(withheld, "BYTES_MAX", 1_000)
    of = query()
    broken: Broken = {}
    list(
        Withheld([of]).through(
            [row(of, minute, 1, 0) for minute in range(20)], batch(0, T0), broken
        )
    )
    assert "shorten windows or lateness" in broken[of.label]


def test_what_a_rebuild_computed_is_told_or_takes_its_place_among_what_is_held_back() -> None:
    of = query()
    told, held = parted(of, [row(of, 0, 1, 5, is_final=True), row(of, 3, 1, 5)])
    assert [orjson.loads(one.value or b"")["window_start"] for one in told] == [T0]
    assert [withheld.begin_of(key.decode()) for key in held] == [T0 + 3 * MINUTE]
    assert parted(query(headers=""), [row(of, 3, 1, 5)])[1] == {}


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 40_000), st.booleans()),
        max_size=60,
    )
)
def test_every_window_with_a_row_is_told_exactly_once_with_its_last_value_whoever_goes_on(
    steps: list[tuple[int, str, int, bool]],
) -> None:
    """Each step changes one row, moves event time, and perhaps the process dies after it."""
    of = query()
    log, held, top, last = Log(of), Withheld([of]), T0, {}
    for revision, (minute, device, moved, dies) in enumerate(steps):
        before, top = top, top + moved
        passed = emit.watermark(of.query, before) or 0
        changed = []
        if T0 + (minute + 1) * MINUTE > passed:
            end = emit.watermark(of.query, top) or 0
            changed = [
                row(
                    of,
                    minute,
                    revision,
                    revision,
                    device=device,
                    is_final=T0 + (minute + 1) * MINUTE <= end,
                )
            ]
            last[minute, device] = revision
        log.step(held, changed, batch(revision, top, before))
        held = log.again() if dies else held
    log.step(held, [], batch(len(steps), T0 + 60 * MINUTE, top))
    told = {((one["window_start"] - T0) // MINUTE, one["device"]): one["n"] for one in log.told}
    assert told == last
    assert len(log.told) == len(last), "once"
    assert log.rows == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "-- name: q\n-- emit: sometimes\nSELECT count(*) AS n FROM s GROUP BY "
            "window(event_time, '1 minute')",
            "expected changes or final",
        ),
        (
            "-- name: q\n-- emit: final\nSELECT device, count(*) AS n FROM s GROUP BY device",
            "without a window a row never is",
        ),
        (
            "-- name: q\n-- table: device\n-- emit: final\nSELECT device, speed FROM s",
            "not with table",
        ),
    ],
)
def test_the_header_is_refused_where_nothing_would_ever_be_final(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        parse(text)


def test_the_header_says_when_a_row_is_told() -> None:
    assert query().query.emits_final
    assert not query(headers="").query.emits_final
    assert not query(headers="-- emit: changes\n").query.emits_final
