"""Calls that may block: whoever waits gets an answer, whatever the call does, and who waits no more
is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from edgewake.edge.daemon_thread import DaemonThread, in_daemon_thread
from tests.services import PATIENCE_S, wait_until


def nothing_left() -> Any:
    return next(iter([]))


def raises(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        pytest.param(raises(OSError("gone")), OSError, "gone", id="an error comes as it is"),
        pytest.param(nothing_left, RuntimeError, "StopIteration", id="an iterator that has ended"),
        pytest.param(lambda: sys.exit(3), RuntimeError, "SystemExit: 3", id="a driver that exits"),
        pytest.param(
            raises(KeyboardInterrupt()), RuntimeError, "KeyboardInterrupt", id="an interrupt"
        ),
    ],
)
async def test_whoever_waits_hears_what_went_wrong(
    call: Callable[[], Any], kind: type[Exception], says: str
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with DaemonThread("test") as thread:
            with pytest.raises(kind, match=says):
                await thread.call(call)
            assert await thread.call(lambda: 5) == 5, "the thread lives on"


async def test_calls_are_done_one_after_the_other_in_their_order() -> None:
    done: list[int] = []
    with DaemonThread("test") as thread:
        await asyncio.gather(*(thread.call(lambda n=n: done.append(n)) for n in range(20)))  # type: ignore[misc]
    assert done == list(range(20))


async def test_one_that_waits_no_more_holds_up_nobody() -> None:
    """The call goes on; what comes behind it waits for it, and not for whoever gave it up."""
    held, done = threading.Event(), threading.Event()
    with DaemonThread("test") as thread:
        given_up = asyncio.create_task(thread.call(lambda: (held.wait(PATIENCE_S), done.set())))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait({given_up})
        assert given_up.cancelled()
        held.set()
        assert await thread.call(lambda: 7) == 7
    assert done.is_set()


async def test_the_thread_is_a_daemon_and_ends_with_its_block() -> None:
    with DaemonThread("test of the end") as thread:
        found = await thread.call(threading.current_thread)
        assert (found.daemon, found.name) == (True, "test of the end")
    await asyncio.to_thread(found.join, PATIENCE_S)
    assert not found.is_alive()


async def test_a_single_call_has_a_thread_of_its_own() -> None:
    found = await in_daemon_thread(threading.current_thread, name="single")
    assert (found is threading.current_thread(), found.name) == (False, "single")
    with pytest.raises(OSError, match="gone"):
        await in_daemon_thread(raises(OSError("gone")), name="single")


async def test_what_nobody_waits_for_is_logged_and_the_thread_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR), DaemonThread("test") as thread:
        thread.soon(raises(OSError("cannot be closed")))
        assert await asyncio.wait_for(thread.call(lambda: 5), PATIENCE_S) == 5
    assert "cannot be closed" in str(caplog.records[0].exc_info)


@pytest.fixture
def unhandled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What threads died of."""
    found: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(args.exc_value))
    return found


def test_an_answer_after_the_loop_has_ended_is_for_nobody(unhandled: list[object]) -> None:
    held = threading.Event()
    threads: list[threading.Thread] = []

    def late() -> int:
        threads.append(threading.current_thread())
        held.wait(PATIENCE_S)
        return 5

    async def give_up() -> None:
        task = asyncio.create_task(in_daemon_thread(late, name="late"))
        while not threads:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(give_up())
    held.set()
    wait_until(lambda: not threads[0].is_alive(), "the thread has ended")
    assert unhandled == []
