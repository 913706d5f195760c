"""A destination that hangs, or many that do, beside one that answers: it is told all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from edgewake.cloud.alerts import places, sender, telling
from edgewake.cloud.alerts.destination import DestinationText, sealed
from edgewake.cloud.alerts.judge import Tried
from edgewake.cloud.alerts.places import PLACES_MAX, SLOW_S, Places
from edgewake.cloud.calls import webhook
from edgewake.protocol.clock import FakeClock, SystemClock
from edgewake.protocol.ops.alert import Destination, Note, NoteState, Severity
from tests.alerts.build import T0
from tests.alerts.test_destination import SEALER, random_bytes
from tests.services import PATIENCE_S


def note(name: str, number: int, error: str = "") -> Note:
    return Note(
        id=f"{name}-{number}",
        rule="hot",
        destination=name,
        title="hot",
        body="…",
        severity=Severity.INFO,
        made_at=T0 + number,
        error=error,
    )


def row(name: str, address: str) -> Destination:
    found, _ = sealed(
        name,
        DestinationText(address=address),
        None,
        sealer=SEALER,
        allow_hosts=("127.0.0.1",),
        random_bytes=random_bytes,
        at=T0,
        by="ann",
    )
    return found


@contextmanager
def receiver(said: threading.Event | None = None) -> Iterator[int]:
    """The port of one that answers; with `said` not before it is set."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if said is not None:
                said.wait(2 * PATIENCE_S)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        if said is not None:
            said.set()
        server.shutdown()
        server.server_close()


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # of a library of Apprise's
@pytest.mark.parametrize("own", [1, pytest.param(PLACES_MAX, id="control", marks=pytest.mark.long)])
async def test_one_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, own: int) -> None:
    """By real processes. Control: one that may have all places takes them."""
    monkeypatch.setattr(places, "OWN_MAX", own)
    monkeypatch.setattr(sender, "CHILD_S", 2 * PATIENCE_S)
    clock = SystemClock()
    with receiver(threading.Event()) as dead, receiver() as good:
        rows = {
            "dead": row("dead", f"json://127.0.0.1:{dead}/?rto=600"),
            "good": row("good", f"json://127.0.0.1:{good}/"),
        }
        caller = webhook.Caller(clock)
        sending = sender.Sender(lambda: rows, SEALER, caller, ("127.0.0.1",), clock)
        hanging = [
            asyncio.create_task(sending.send(note("dead", number))) for number in range(PLACES_MAX)
        ]
        await asyncio.sleep(0)
        told = asyncio.create_task(sending.send(note("good", 1)))
        try:
            done, _ = await asyncio.wait([told], timeout=PATIENCE_S if own == 1 else 10)
            assert not any(task.done() for task in hanging)
            assert bool(done) == (own == 1)
            if done:
                assert told.result() == Tried("good-1", None)
        finally:
            for task in (*hanging, told):
                task.cancel()
            await asyncio.gather(*hanging, told, return_exceptions=True)


async def test_however_many_were_slow_they_have_one_place_together() -> None:
    clock = FakeClock()
    made, release = Places(clock), asyncio.Event()
    sending: list[str] = []

    async def send(name: str) -> None:
        async with made.of(name):
            sending.append(name)
            await release.wait()

    async def begin(*names: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(send(name)) for name in names]
        for _ in range(9):
            await asyncio.sleep(0)
        return tasks

    first = await begin("a", "b", "c", "good")
    assert sending == ["a", "b", "c"], "nobody knows yet that they are slow"
    clock.advance(SLOW_S + 1)
    release.set()
    await asyncio.gather(*first)
    release.clear()
    sending.clear()
    again = await begin("a", "b", "c", "a", "good", "good")
    assert sending == ["a", "good"]
    release.set()
    await asyncio.gather(*again)
    assert sending.count("good") == 2
    release.clear()
    sending.clear()
    last = await begin("a", "b", "c")
    assert sending == ["a", "b", "c"], "they were quick this time"
    release.set()
    await asyncio.gather(*last)


async def test_who_is_cancelled_twice_leaves_nobody_asleep() -> None:
    made, sending = Places(FakeClock()), list[str]()

    async def send(name: str) -> None:
        async with made.of(name):
            sending.append(name)
            await asyncio.Event().wait()

    async def pass_turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    names = ["a", "b", "c", "waits-1", "waits-2", "waits-3", "waits-4"]
    tasks = [asyncio.create_task(send(name)) for name in names]
    try:
        await pass_turns(9)
        assert sending == ["a", "b", "c"]
        tasks[0].cancel()
        await pass_turns(2)
        tasks[1].cancel()
        await pass_turns(1)
        tasks[1].cancel()
        await pass_turns(30)
        assert sending == ["a", "b", "c", "waits-1", "waits-2"]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_destination_that_was_removed_is_forgotten() -> None:
    clock = FakeClock()
    made = Places(clock)

    async def send(name: str, seconds: float) -> None:
        async with made.of(name):
            clock.advance(seconds)

    await send("removed", SLOW_S + 1)
    await send("slow", SLOW_S + 1)
    made.forget_others(["slow", "other"])
    async with asyncio.timeout(PATIENCE_S), made.of("slow"):
        async with made.of("removed"):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), made.of("slow"):
                pass


def test_destinations_whose_notes_were_given_up_are_failing() -> None:
    """Eight fresh notes to dead destinations took all turns, and a good one waited for 45 s."""
    given_up = {"state": NoteState.GIVEN_UP, "done_at": T0}
    sent = {"state": NoteState.SENT, "done_at": T0 + 1}
    dead = [f"dead-{number}" for number in range(telling.AT_ONCE_MAX)]
    done = [note(name, 0, error="dead").model_copy(update=given_up) for name in dead]
    done += [note("good", 0, error="dead").model_copy(update=given_up)]
    done += [note("good", 1).model_copy(update=sent)]
    fresh = [note(name, 9) for name in dead]
    now = T0 + 1000
    chosen = [*telling.due([*reversed(done), *fresh, note("good", 99)], {}, now)]
    assert len(chosen) == telling.AT_ONCE_FAILING_MAX + 1
    assert chosen[-1].destination == "good"
    more = [note("good", 100), note("good", 101)]
    found = list(telling.due([*reversed(done), *fresh, *more], {}, now))
    assert [one.id for one in found[-2:]] == ["good-100", "good-101"], "its last one came through"


def test_however_many_fail_others_are_tried() -> None:
    failing = [note(f"dead-{n}", k, error="dead") for n in range(9) for k in range(3)]
    fresh = [note("good", 99)]
    now = T0 + 1000
    chosen = list(telling.due([*failing, *fresh], {}, now))
    assert [one.destination for one in chosen].count("good") == 1
    assert len(chosen) == telling.AT_ONCE_FAILING_MAX + 1
    under_way = {one.id: one.destination for one in chosen}
    assert list(telling.due([*failing, *fresh], under_way, now)) == []
    (next_one,) = telling.due([*failing, *fresh, note("other", 100)], under_way, now)
    assert next_one.destination == "other"
