"""Each frame once and in order, whatever two bridges did to them on the way, and whenever the
process dies.
"""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from edgewake.cloud.sequencer.order.arrival import Arrival, Statement
from edgewake.cloud.sequencer.order.bounds import EPOCHS_MAX, Bounds
from edgewake.cloud.sequencer.order.changes import REPLAY_RECORDS
from edgewake.cloud.sequencer.order.frame_order import FrameOrder
from edgewake.cloud.sequencer.order.holes import HOLES_MAX
from edgewake.cloud.sequencer.order.state_table import line_digest
from edgewake.protocol.frames.record import Discipline, Placement
from tests.examples import examples
from tests.sequencer.ordering import START_MS, Order

READINGS = 10


def frame(
    number: int, *, offset: int, device: str = "a", epoch: int = 1, size: int = 100
) -> Arrival:
    placement = Placement(
        Discipline.ORDERED, "s", epoch, number, number, (number - 1) * READINGS + 1, READINGS
    )
    return Arrival(offset, device, placement, size, START_MS)


@st.composite
def journeys(draw: st.DrawFn) -> list[int]:
    """Frames 1..n, each at least once, repeated and shuffled."""
    count = draw(st.integers(1, 30))
    numbers = list(range(1, count + 1)) + draw(st.lists(st.integers(1, count), max_size=30))
    return draw(st.permutations(numbers))


@given(journeys(), st.lists(st.integers(0, 60), max_size=4))
def test_any_interleaving_of_repeats_disorder_and_restarts_comes_out_once_and_in_order(
    numbers: list[int], deaths: list[int]
) -> None:
    order = Order()
    out = []
    for i, number in enumerate(numbers):
        if i in deaths:
            out += order.restart()
        out += order.accept({"frame": number})
    assert [order.log[one["pass"]]["frame"] for one in out] == list(range(1, max(numbers) + 1))
    assert (order.partition.order.held, order.partition.order.held_bytes) == (0, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from([0, 1, 200, 400]), st.integers(-40_000, 40_000)
        ),
        max_size=40,
    ),
    st.sets(st.integers(0, 39)),
)
def test_what_is_known_of_the_clocks_survives_any_kill(
    records: list[tuple[str, int, int]], deaths: set[int]
) -> None:
    """The same records, in one life and in many: the same shifts."""
    one, many = Order(), Order()
    for i, (device, after_s, apart_ms) in enumerate(records):
        out = []
        for order in (one, many):
            if order is many and i in deaths:
                assert order.restart() == []
            order.time(order.now_s + after_s)
            sent_at = order.now_ms - apart_ms
            out.append(
                order.accept(
                    {
                        "discipline": "free",
                        "epoch": 0,
                        "device": device,
                        "readings": 1,
                        "seq": 0,
                        "sent_at": sent_at,
                    }
                )
            )
        assert out[0] == out[1]


class AnyLife(RuleBasedStateMachine):
    """Records of two devices, two epochs and all disciplines, gap frames, time and kills, in any
    order; a naive oracle judges the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.order = Order(frames=6, bytes=2000)
        self.out: list[dict[str, Any]] = []

    @rule(device=st.sampled_from("ab"), epoch=st.integers(1, 2), number=st.integers(1, 25))
    def ordered(self, device: str, epoch: int, number: int) -> None:
        self.out += self.order.accept({"device": device, "epoch": epoch, "frame": number})

    @rule(number=st.integers(2, 40))
    def numbered(self, number: int) -> None:
        self.out += self.order.accept(
            {"discipline": "numbered", "epoch": 0, "frame": number, "seq": number, "readings": 1}
        )

    @rule()
    def free(self) -> None:
        self.out += self.order.accept({"discipline": "free", "epoch": 0, "seq": 0, "readings": 1})

    @rule(step_s=st.sampled_from([0.2, 1.0, 3.0, 6.0]))
    def time(self, step_s: float) -> None:
        self.out += self.order.time(self.order.now_s + step_s)

    @precondition(lambda self: self.order.log)
    @rule()
    def killed(self) -> None:
        assert self.order.restart() == [], "what was passed on passes again"

    def teardown(self) -> None:
        self.out += self.order.restart()
        self.out += self.order.time(self.order.now_s + 6)
        log = self.order.log
        passed: dict[Any, list[tuple[int, bool]]] = defaultdict(list)
        stated: dict[Any, set[int]] = defaultdict(set)
        for one in self.out:
            if "pass" in one:
                record = log[one["pass"]]
                line = (
                    record.get("discipline", "ordered"),
                    record.get("device", "a"),
                    record["epoch"],
                )
                passed[line].append((record.get("frame", one["pass"]), bool(one.get("late"))))
            else:
                assert one["statement"] in ("open", "unknown_before")
                assert one["lost"] == 0, "nothing was lost"
                stated["ordered", one["device"], one["epoch"]] |= set(
                    range(one["first"], one["last"] + 1)
                )
        sent: dict[Any, list[int]] = defaultdict(list)
        for offset, record in enumerate(log):
            line = (record.get("discipline", "ordered"), record.get("device", "a"), record["epoch"])
            sent[line].append(record.get("frame", offset))
        for line, numbers in sent.items():
            came = passed[line]
            assert sorted(number for number, _ in came) == sorted(set(numbers)), (
                f"{line}: each once"
            )
            if line[0] == "ordered":
                in_turn = [number for number, late in came if not late]
                assert in_turn == sorted(in_turn), f"{line}: in order"
                assert set(range(1, max(numbers) + 1)) - set(in_turn) == stated[line], (
                    f"{line}: every hole is stated, and nothing else"
                )
                assert {number for number, late in came if late} <= stated[line]


AnyLife.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestAnyLife = AnyLife.TestCase


def test_a_device_that_invents_epochs_harms_only_itself() -> None:
    """20,000 invented epochs: four states, and the neighbour's next frame passes at once, its
    repeat does not.
    """
    order = FrameOrder(Bounds())
    for number in range(1, 51):
        order.accept(frame(number, offset=number, device="meter"), now_s=0)
    for epoch in range(1, 20_001):
        assert order.accept(frame(1, offset=100 + epoch, device="liar", epoch=epoch), now_s=1)
    order.sweep(now_ms=START_MS, offset=30_000)
    assert len(order.table) == 1 + EPOCHS_MAX
    assert len(order.accept(frame(51, offset=30_000, device="meter"), now_s=2)) == 1
    assert order.accept(frame(50, offset=30_001, device="meter"), now_s=2) == []


def test_late_frames_that_split_a_hole_cost_the_same_however_many_came() -> None:
    """A hole of ten million frames of which every second one comes: the ranges stay bounded, each
    frame passes, each loss is counted.
    """
    order = FrameOrder(Bounds())
    order.accept(frame(1, offset=0), now_s=0)
    order.accept(frame(10_000_000, offset=1), now_s=0)
    order.tick(now_s=5, now_ms=START_MS, offset=2)
    late = lost = 0
    for i, number in enumerate(range(3, 8_003, 2)):
        for one in order.accept(frame(number, offset=2 + i), now_s=6):
            if isinstance(one, Statement):
                lost += one.lost
            else:
                late += one.late
    assert (late, order.open_holes) == (4000, HOLES_MAX)
    assert lost == (4000 + 1 - HOLES_MAX) * READINGS
    assert max(len(order.block_row(block, through=0)) for block in range(256)) < 4096


def test_at_the_bound_of_states_old_epochs_go_first_and_then_the_quietest_lines() -> None:
    order = FrameOrder(Bounds(states=100))

    def send(offset: int, device: str, epoch: int) -> None:
        arrival = frame(1, offset=offset, device=device, epoch=epoch)
        arrival.received_at = START_MS + offset * 1000
        order.accept(arrival, now_s=0)

    send(1, "quiet", 1)
    for i in range(2, 100):
        send(i, f"d{i}", 1)
    send(100, "d99", 2)
    send(101, "new", 1)
    known = {
        device: order.accept(frame(1, offset=1000, device=device), now_s=0) == []
        for device in ("quiet", "d5", "d99", "new")
    }
    assert known == {"quiet": False, "d5": False, "d99": False, "new": True}
    assert order.accept(frame(1, offset=1001, device="d99", epoch=2), now_s=0) == [], (
        "the newest epoch of a busy line stays"
    )


def test_old_epochs_are_forgotten_after_a_time_and_the_highest_never() -> None:
    order = FrameOrder(Bounds(old_epoch_s=100))
    order.accept(frame(1, offset=0), now_s=0)
    order.accept(frame(1, offset=1, epoch=2), now_s=0)
    order.sweep(now_ms=START_MS + 99_000, offset=2)
    assert len(order.table) == 2
    order.sweep(now_ms=START_MS + 101_000, offset=2)
    assert len(order.table) == 1
    assert order.accept(frame(1, offset=2, epoch=2), now_s=0) == []


def test_a_state_takes_at_most_a_hundred_bytes() -> None:
    """Everything that the process allocates for states of as many devices, at any load of the
    table.
    """
    states = 8_000
    order = FrameOrder(Bounds())
    line_digest.cache_clear()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    each = []
    for i in range(states):
        for one in order.accept(frame(1, offset=i, device=f"device-{i:06d}"), now_s=0):
            del one
        if i > states / 2 and i % 100 == 0:
            each.append(order.table.memory_bytes / len(order.table))
    order.changes.due(10**9)
    line_digest.cache_clear()  # bounded, for all partitions together
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert max(each) <= 80
    assert 0 < (after - before) / states <= 100


def test_rows_are_written_once_a_minute_and_not_with_every_record() -> None:
    order = Order()
    for minute in range(3):
        for second in range(60):
            order.time(minute * 60 + second)
            for device in range(20):
                order.accept({"device": f"d{device}", "frame": minute * 60 + second + 1})
    assert order.rows_written <= 20 * 3
    assert order.position.read_from >= len(order.log) - 20 * 61, "a restart reads a minute again"


def test_what_is_read_again_is_bounded_under_any_rate() -> None:
    order = Order()
    for number in range(1, 50_001):
        order.accept({"frame": number})
    assert order.position.emitted_before - order.position.read_from <= REPLAY_RECORDS
    assert order.rows_written <= 50_000 / REPLAY_RECORDS
