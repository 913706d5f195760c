"""Kills logs: `python -m tests.edge.log.crash_runner DIR --kills N [--mode M]
[--accept-before-commit]` prints its findings as JSON.

A parent without threads forks one child after the other. Each child opens the log, appends to two
streams, sends frames to the parent, and is killed with -9: by itself at the n-th passage of a named
failpoint, or by the parent at a random moment. The parent is the cloud: it keeps what it is sent
and acknowledges it. `live` numbers its readings by life; `tail` goes on from the position that the
log remembers, as a file tail does, so each of its numbers must arrive exactly once. A consumer
reads `tail` and derives `twice` of it, with a count as its state: both must be what they would be
without any death. A last child is not killed and sends what is left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.consumer import Consumer
from edgewake.edge.log.event_log import EventLog, FrameKey, OutFrame
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.state import LogBusyError
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.log.writing import disk
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from tests.edge import foreign_frame

FAILPOINTS = (
    "appended",
    "received",
    "inserted",
    "committed",
    "accepted",
    "delivered",
    "sent",
    "acked",
    "freed",
    "checkpointing",
)
LIFE = 1_000_000
UPLINK = UplinkConfig(inflight_frames_max=8, frame_readings_max=50)


def log_config(mode: LogMode) -> LogConfig:
    """Small, and in a hurry."""
    return LogConfig(linger_ms=0, reserve_bytes=0, mode=mode)


class Child:
    """One life of a log."""

    def __init__(
        self,
        directory: Path,
        out: int,
        acks: int,
        *,
        life: int,
        failpoint: str | None,
        nth: int,
        control: bool,
        rounds: int,
        mode: LogMode = LogMode.HML,
    ) -> None:
        self._out, self._acks = out, acks
        self._failpoint, self._left = failpoint, nth
        self._synchronous = mode.flags.is_synchronous
        self._life, self._control, self._rounds = life, control, rounds
        self._unacked = threading.Semaphore(0)
        self._events = EventLog(
            directory,
            log_config(mode),
            UPLINK,
            clock=SystemClock(),
            rng=random.Random(life),
            on_frames=self._send,
            failpoint=self._pass,
        )

    def _pass(self, place: str) -> None:
        if place == self._failpoint:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, *words: object) -> None:
        os.write(self._out, (" ".join(map(str, words)) + "\n").encode())

    def _send(self, sent: object) -> None:
        self._pass("delivered")
        for frame in sent:  # type: ignore[attr-defined]
            assert isinstance(frame, OutFrame)
            self._say(
                "F",
                frame.key.stream,
                frame.key.epoch,
                frame.key.frame,
                frame.content_type,
                frame.payload.hex(),
            )
        self._pass("sent")

    def _listen(self) -> None:
        with os.fdopen(self._acks, encoding="ascii") as lines:
            for line in lines:
                stream, epoch, frame = line.split()
                self._pass("acked")
                self._events.free(FrameKey(stream, int(epoch), int(frame)))
                self._pass("freed")

    def run(self) -> None:
        """Append, report what is accepted, until killed or done."""
        threading.Thread(target=self._listen, daemon=True).start()
        live, tail = self._events.stream("live"), self._events.stream("tail")
        at = int(self._events.position("tail") or 0)
        consumer = self._events.open_consumer("twice", ["tail"])
        derived = int(consumer.state or 0)
        self._events.start_sending()
        for number in range(self._rounds):
            value = self._life * LIFE + number
            tickets = live.append((1_790_000_000_000 + number, {"n": value})), 0
            chunk = [(1_790_000_000_000, {"n": at + i}) for i in range(1, 6)]
            at += 5
            tickets = tickets[0], tail.append_all(chunk, position=("tail", str(at)))
            self._pass("appended")
            if not self._synchronous:
                self._say("R", "live", value)
            derived = self._consume(consumer, derived)
            if not self._control:
                assert live.wait_accepted(tickets[0], timeout_s=20)
            self._say("R", "live", value)
            self._say("A", "live", value)
            if not self._control:
                assert tail.wait_accepted(tickets[1], timeout_s=20)
            self._say("A", "tail", at)
        deadline = time.monotonic() + 20
        while (
            consumer.cursor["tail"] < self._events._writer.store.last("tail")
            and time.monotonic() < deadline
        ):
            derived = self._consume(consumer, derived)
        self._say("C", "tail", derived)
        while self._events.status().backlog_readings and time.monotonic() < deadline:
            time.sleep(0.005)
        self._events.close()

    def _consume(self, consumer: Consumer, derived: int) -> int:
        """Derive from what there is; how many were derived in all lives."""
        chunk = consumer.poll()
        for item in chunk.items:
            if isinstance(item, Received):
                derived += len(item.readings)
        readings = [
            (t, {"n": 2 * fields["n"]})
            for item in chunk.items
            if isinstance(item, Received)
            for t, fields in item.readings
        ]  # type: ignore[operator]
        while True:
            try:
                consumer.submit(
                    chunk.cursor,
                    state=b"%d" % derived,
                    derived={"twice": readings} if readings else {},
                )
            except LogBusyError:
                time.sleep(0.001)
            else:
                return derived


class Cloud:
    """What the parent keeps."""

    def __init__(self) -> None:
        self.frames: dict[tuple[str, int, int], bytes] = {}
        self.accepted: dict[str, set[int]] = {"live": set(), "tail": set()}
        self.received: set[int] = set()
        self.counted = 0
        self.repeats = 0
        self.changed = 0

    def hear(self, line: str) -> bytes | None:
        """One line of a child; the acknowledgement, or None."""
        kind, stream, *rest = line.split()
        if kind in "ARC":
            if kind == "A":
                self.accepted[stream].add(int(rest[0]))
            elif kind == "R":
                self.received.add(int(rest[0]))
            else:
                self.counted = int(rest[0])
            return None
        epoch, number, content_type, payload = (
            int(rest[0]),
            int(rest[1]),
            rest[2],
            bytes.fromhex(rest[3]),
        )
        plain = foreign_frame.inflate(payload, content_type)
        key = (stream, epoch, number)
        self.repeats += key in self.frames
        # Of a number that came before: it was lost after it had been sent.
        is_gap = foreign_frame.parse(plain).gap is not None
        self.changed += self.frames.setdefault(key, plain) != plain and not is_gap
        return f"{stream} {epoch} {number}\n".encode()

    def verdict(self) -> dict[str, int]:
        """Violations by kind; all must be 0."""
        values: dict[str, list[int]] = {"live": [], "tail": [], "twice": []}
        said = Counter[str]()
        holes = 0
        for stream, into in values.items():
            for epoch in sorted({key[1] for key in self.frames if key[0] == stream}):
                numbers = sorted(key[2] for key in self.frames if key[:2] == (stream, epoch))
                holes += numbers != list(range(1, len(numbers) + 1))
                for number in numbers:
                    frame = foreign_frame.parse(self.frames[stream, epoch, number])
                    into += frame.fields.get("n", [])
                    said[stream] += frame.gap.count if frame.gap else 0
        tail_end = max(self.accepted["tail"], default=0)
        lost = {
            "live": len(self.accepted["live"] - set(values["live"])),
            "tail": len(set(range(1, tail_end + 1)) - set(values["tail"])),
        }
        return {
            "received_lost": len(self.received - set(values["live"])),
            "unsaid": sum(max(0, count - said[stream]) for stream, count in lost.items()),
            "not_derived": len({2 * n for n in values["tail"]} ^ set(values["twice"])),
            "miscounted": abs(self.counted - len(values["tail"])),
            "lost": sum(lost.values()),
            "twice": sum(count - 1 for of in values.values() for count in Counter(of).values()),
            "disorder": sum(of != sorted(of) for of in values.values()),
            "holes": holes,
            "changed": self.changed,
        }


def live_once(
    cloud: Cloud,
    make: Callable[[int, int], Child],
    kill_after_s: float | None,
    *,
    before: Callable[[int], None] = lambda _pid: None,
    cut_power: Callable[[], None] | None = None,
) -> bool:
    """Fork a child, be its cloud until it ends; True where it was killed with -9, or its power was
    cut.

    `before` gets its pid before it begins; `cut_power` is called before it is killed. What the
    child said before it was killed counts, also what is read later; but what it says from
    `cut_power` on counts for nothing, for a device without power says nothing. The child still runs
    for a moment, and Linux tells it things then that no power cut does (`power_loss.py`).
    """
    from_child, out = os.pipe()
    acks, to_child = os.pipe()
    gate, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(from_child)
        os.close(to_child)
        os.close(go)
        try:
            os.read(gate, 1)
            make(out, acks).run()
        except BaseException as error:  # a child must never return into the parent's code
            os.write(2, f"child: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    for fd in (out, acks, gate):
        os.close(fd)
    try:
        before(pid)
    finally:
        os.close(go)
    deadline = None if kill_after_s is None else time.monotonic() + kill_after_s
    rest, has_power = b"", True
    while True:
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([from_child], [], [], wait_s)[0]:
            if cut_power is not None:
                cut_power()
                has_power = False
            os.kill(pid, signal.SIGKILL)
            deadline = None
            continue
        data = os.read(from_child, 65_536)
        if not data:
            break
        if not has_power:
            continue
        *lines, rest = (rest + data).split(b"\n")
        for answer in filter(None, (cloud.hear(line.decode()) for line in lines)):
            with contextlib.suppress(BrokenPipeError):
                os.write(to_child, answer)
    os.close(from_child)
    os.close(to_child)
    _, status = os.waitpid(pid, 0)
    if not has_power:
        return True
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit(f"a child failed with {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def main() -> None:
    """Kill, then judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--accept-before-commit", action="store_true")
    parser.add_argument("--mode", type=LogMode, default=LogMode.HML)
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    disk.CHECKPOINT_BYTES = 64 * 1024  # type: ignore[misc]
    rng = random.Random(7)
    cloud, killed, by_place, life = Cloud(), 0, Counter[str](), 0
    while killed < options.kills:
        life += 1
        failpoint = rng.choice([*FAILPOINTS, None, None])
        nth = rng.randrange(1, 12) if failpoint != "checkpointing" else 1

        def make(
            out: int,
            acks: int,
            *,
            life: int = life,
            failpoint: str | None = failpoint,
            nth: int = nth,
        ) -> Child:
            return Child(
                options.directory, out, acks, life=life, failpoint=failpoint, nth=nth,
                control=options.accept_before_commit, rounds=60,
                mode=options.mode,
            )  # fmt: skip

        if live_once(cloud, make, rng.uniform(0.005, 0.12) if failpoint is None else None):
            killed += 1
            by_place[failpoint or "random"] += 1
        if life > 3 * options.kills:
            break

    def last(out: int, acks: int) -> Child:
        return Child(
            options.directory,
            out,
            acks,
            life=life + 1,
            failpoint=None,
            nth=0,
            control=False,
            rounds=1,
            mode=options.mode,
        )

    live_once(cloud, last, None)
    report = {
        "lives": life,
        "killed": killed,
        "by_place": by_place,
        "repeats": cloud.repeats,
        "frames": len(cloud.frames),
    }
    print(json.dumps(report | {"violations": cloud.verdict()}))


if __name__ == "__main__":
    main()
