"""When a stream's next frame is formed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.writing.filling import Filling
from edgewake.edge.uplink.config import UplinkConfig
from tests.edge.helpers import Sent, opened, put
from tests.services import wait_until

LINGER_S = {Lane.URGENT: 0.002, Lane.NORMAL: 0.2, Lane.BULK: 1.0}


def frames_formed(
    per_s: float, commit_s: float, *, seconds: float = 20.0, linger_s: float = 0.2
) -> float:
    """Readings come evenly and are committed every `commit_s`; readings in each frame, at most
    1000.
    """
    filling = Filling({Lane.NORMAL: linger_s}, readings_max=1000)
    waiting, frames, sent, begun = 0, 0, 0, 0.0
    for step in range(1, int(seconds / commit_s) + 1):
        now_s = step * commit_s
        came = int(now_s * per_s) - int((now_s - commit_s) * per_s)
        if came:
            begun = begun if waiting else now_s
            waiting += came
            filling.committed("a", came, now_s, since_s=now_s)
        due_s = filling.due_s("a", Lane.NORMAL, waiting)
        assert due_s is None or due_s <= begun + linger_s + 1e-9
        if waiting and (due_s is None or due_s <= now_s):
            frames, sent, waiting = frames + 1, sent + min(1000, waiting), max(0, waiting - 1000)
            filling.framed("a") if not waiting else None
    return sent / frames


def test_a_reading_that_comes_alone_does_not_wait() -> None:
    assert frames_formed(1, 0.005) == 1


def test_the_more_readings_come_the_fuller_are_the_frames() -> None:
    """Although something urgent makes a commit every 5 ms."""
    filled = [frames_formed(per_s, 0.005) for per_s in (5, 50, 500, 4000, 50_000)]
    assert filled == sorted(filled)
    assert filled[2] > 50
    assert filled[-1] > 200


def test_without_lingering_each_commit_has_its_frame() -> None:
    """The control."""
    assert frames_formed(500, 0.005, linger_s=0.0) < 4


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5000)), max_size=50), st.sampled_from(Lane)
)
def test_no_frame_waits_longer_than_its_lane_lingers(
    commits: list[tuple[float, int]], lane: Lane
) -> None:
    filling, now_s, since_s = Filling(LINGER_S, readings_max=1000), 0.0, None
    for after_s, readings in commits:
        now_s += after_s
        since_s = now_s if since_s is None else since_s
        filling.committed("a", readings, now_s, since_s=now_s)
        due_s = filling.due_s("a", lane, readings)
        assert due_s is None or due_s <= since_s + LINGER_S[lane]
        if due_s is None:
            filling.framed("a")
            since_s = None
    assert filling.due_s("a", lane, 1000) is None
    assert filling.due_s("b", lane, 1) is None


def test_an_urgent_stream_beside_it_does_not_cut_a_normal_one_to_frames_of_few(
    tmp_path: Path,
) -> None:
    sent = Sent()
    config = LogConfig(reserve_bytes=0, linger_ms=60_000.0)
    with opened(
        tmp_path,
        sent=sent,
        config=config,
        uplink=UplinkConfig(frame_readings_max=100),
        lanes={"alarm": Lane.URGENT},
    ) as events:
        put(events, range(200), stream="speed")
        put(events, range(200, 400), stream="speed")
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) == 400 or sent.acknowledge(events),
            "what fills frames goes at once",
        )
        for n in range(400, 440):
            log = events.stream("speed")
            log.append((1_790_000_000_000, {"n": n}))
            put(events, range(n, n + 1), stream="alarm")  # commits what `speed` has
        wait_until(
            lambda: (
                sum(out.count for out in sent if out.key.stream == "alarm") == 40
                or sent.acknowledge(events)
            ),
            "urgent ones",
        )
        assert sum(out.count for out in sent if out.key.stream == "speed") == 400, (
            "the others wait for company"
        )
        assert events.status().backlog_readings >= 40
        events.hurry()
        wait_until(
            lambda: (
                sum(out.count for out in sent if out.key.stream == "speed") == 440
                or sent.acknowledge(events)
            ),
            "drained",
        )
    assert [out.count for out in sent if out.key.stream == "speed"][-1] == 40
