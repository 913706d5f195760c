"""States larger than a record: what stands on `ew.windows`, and that a lane goes on from it as if
it had not been restarted.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints import state_parts
from edgewake.cloud.analysis.checkpoints.state_parts import Parts, joined
from edgewake.cloud.analysis.folds import open_keys
from edgewake.cloud.analysis.folds.sequences import dump
from edgewake.cloud.analysis.folds.slots import Value
from edgewake.cloud.analysis.jobs.table_join_job import TableJoinJob
from edgewake.cloud.analysis.jobs.window_fold import Fold
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.examples import examples

MINUTE = 60_000
T0 = 1_790_000_040_000
Reading = tuple[int, str, list[Value]]


class Topic:
    """A compacted topic: the latest record of each key."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def write(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            assert self.rows.pop(key.decode(), None) is not None, "what is removed was there"
        else:
            self.rows[key.decode()] = value


WRITES = st.lists(
    st.tuples(st.sampled_from(["s|q@1|{}", 's|q@1|{"a":1}']), st.integers(-1, 40), st.booleans()),
    max_size=12,
)


@given(WRITES)
@settings(max_examples=examples(150))
def test_states_of_any_size_are_read_as_they_were_written_and_nothing_is_left_of_them(
    writes: list[tuple[str, int, bool]],
) -> None:
    """The numbers: the length of a state, -1 where it is removed; the lane may be restarted
    before.
    """
    topic, states, parts = Topic(), dict[str, bytes](), Parts({})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_parts, "PART_BYTES_MAX", 10)
        for key, size, restarts in [
            *writes,
            *((key, -1, False) for key in list(dict(w[:2] for w in writes))),
        ]:
            if restarts:
                parts = Parts(topic.rows)
            if size < 0:
                if states.pop(key, None) is None:
                    continue
            else:
                states[key] = b"[" + bytes(range(65, 65 + size)) + b"]"
            for name, value in parts.cut(key.encode(), states.get(key)):
                assert value is None or len(value) <= 10
                topic.write(name, value)
            assert joined(topic.rows) == states
    assert topic.rows == {}


def test_a_state_that_lacks_a_part_is_not_taken_for_whole() -> None:
    rows = {"s|q@1|{}": b"#2", "s|q@1|{}\0001": b"]"}
    with pytest.raises(LocalError, match="edgewake query rebuild q"):
        joined(rows)


def query(select: str = "count(DISTINCT speed) AS n") -> Registered:
    table = Stream(
        name="routes",
        fields={
            "route": FieldInfo(type=FieldType.STRING),
            "operator": FieldInfo(type=FieldType.STRING),
        },
    )
    stream = Stream(
        name="s",
        fields={
            "speed": FieldInfo(type=FieldType.NUMBER),
            "route": FieldInfo(type=FieldType.STRING),
        },
    )
    text = (
        f"-- name: q\n-- reopen: 6 hours\nSELECT r.operator, {select} FROM s v LEFT JOIN routes r "
        "ON v.route = r.route"
    )
    file = f"{text} GROUP BY window(event_time, '1 minute'), r.operator"
    return Registered(parse(file, {"s": stream, "routes": table}), 7)


class Run:
    """A lane without Spark and Kafka."""

    def __init__(self, registered: Registered) -> None:
        self.registered, self.topic, self.parts = registered, Topic(), Parts({})
        self.job = TableJoinJob(LaneKind.TABLE_JOIN, ("s",), (), (registered,))
        self.states = self.job.new_states()
        self.dead: list[bytes] = []
        self.rows: dict[bytes, bytes] = {}
        self.largest = self.revision = 0
        self.lacks_before: dict[str, int] = {}

    def batch(self, readings: Iterable[Reading]) -> None:
        self.revision += 1
        step = emit.Batch(
            revision=self.revision,
            top_before=None,
            top=None,
            lacks_before=self.lacks_before,
        )
        for output in Fold(
            "join.s", self.registered, self.states.of[self.registered.label], step
        ).outputs(readings, {}):
            if output.topic != topics.WINDOWS:
                self.rows[output.key] = output.value or b""
                continue
            self.largest = max(self.largest, len(output.value or b""))
            for key, value in self.parts.cut(output.key, output.value):
                one = emit.bounded(emit.Output(topics.WINDOWS, key, value), now_ms=0)
                if one.topic == topics.DEAD:
                    self.dead.append(key)
                else:
                    self.topic.write(key, value)

    def restart(self) -> None:
        self.states, self.parts = (
            self.job.restored(
                joined(self.topic.rows), LaneRecord(stream="s", lane=LaneKind.TABLE_JOIN)
            ),
            Parts(self.topic.rows),
        )


def readings(*, windows: int, values: int, first: int = 0) -> list[Reading]:
    """In each of so many minutes so many different values."""
    texts = [frozenset((f"{first + i}.0",)) for i in range(values)]
    return [
        (T0 + minute * MINUTE + i, '{"operator":"one"}', [text])
        for minute in range(windows)
        for i, text in enumerate(texts)
    ]


def test_a_group_with_hours_of_open_windows_goes_on_after_a_restart_as_without_one() -> None:
    kept, restarted = Run(query()), Run(query())
    for run in (kept, restarted):
        run.batch(readings(windows=360, values=150))
        assert run.largest > emit.OUTPUT_BYTES_MAX, (
            "in one record it would be a dead letter, and missed at the next start"
        )
        if run is restarted:
            run.restart()
        run.batch(readings(windows=360, values=10, first=145))
        assert not run.dead
    assert restarted.rows == kept.rows
    assert {orjson.loads(value)["n"] for value in kept.rows.values()} == {155}
    assert joined(restarted.topic.rows) == joined(kept.topic.rows)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60), st.booleans()), max_size=12),
    st.integers(60, 2_000),
)
@settings(max_examples=examples(60))
def test_records_of_keys_are_bounded_and_keys_with_incomplete_windows_are_named(
    steps: list[tuple[int, int, bool]], most: int
) -> None:
    """The numbers: which group, how many characters its text has; the lane may be restarted
    before.
    """
    run = Run(query("count(*) AS n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_keys, "BYTES_MAX", most)
        whole = dict[str, int]()
        for minute, (group, chars, restarts) in enumerate(steps):
            if restarts:
                run.restart()
            key = orjson.dumps({"operator": str(group) * chars}).decode()
            known = set(run.states.of[run.registered.label])
            run.batch([(T0 + minute * MINUTE, key, [])])
            whole[key] = whole.get(key, 0) + 1
            states = run.states.of[run.registered.label]
            assert sum(len(one) + state.written for one, state in states.items()) <= most
            assert {name.split("|", 2)[2] for name in joined(run.topic.rows)} == set(states)
            for gone in (known | {key}) - set(states):
                assert run.lacks_before[run.registered.label] > T0, (
                    "rows of its windows say that they may lack readings"
                )
                whole.pop(gone)
        for key, count in whole.items():
            assert (
                sum(one.readings for one in run.states.of[run.registered.label][key].windows)
                == count
            )


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=5), st.integers(1, 2))
@settings(max_examples=examples(60))
def test_what_is_forgotten_and_comes_again_within_a_batch_is_written_down_as_it_is(
    batches: list[list[str]], most: int
) -> None:
    run = Run(query("count(*) AS n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_keys, "KEYS_MAX", most)
        for groups in batches:
            run.batch([(T0, f'{{"operator":"{group}"}}', []) for group in groups])
            states = run.states.of[run.registered.label]
            assert len(states) <= most
            written = {
                name.split("|", 2)[2]: orjson.loads(value)
                for name, value in joined(run.topic.rows).items()
            }
            assert written == {key: dump(state) for key, state in states.items()}


def test_a_record_whose_key_is_too_large_is_a_dead_letter_as_well() -> None:
    """Kafka counts both; a record that it refuses would stop the lane for ever."""
    large = emit.Output("ew.q.q", b"k" * (emit.OUTPUT_BYTES_MAX - 5), b"123456", {})
    letter = emit.bounded(large, now_ms=0)
    assert (letter.topic, len(letter.key), letter.value) == (
        topics.DEAD,
        emit.DEAD_BYTES_MAX,
        b"123456",
    )
