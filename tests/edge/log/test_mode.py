"""The five logging modes: one contract over kill -9, and what each does at its own place."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from edgewake.edge.intake.intake import Intake, LogSink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.state import LogBusyError
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.protocol.clock import SystemClock
from tests.edge.helpers import Sent, frame_of, opened, put, reading
from tests.edge.log.test_event_log import NOTHING, crash_runner, edit
from tests.services import PATIENCE_S, wait_until

DURABLE = [mode for mode in LogMode if mode.flags.is_durable]
KILLS = 60
SHORT = (LogMode.HML, LogMode.RBML, LogMode.NONE)
"""The default, one that is synchronous, and the control, which loses."""


def config(mode: LogMode, **more: object) -> LogConfig:
    """Without waits."""
    return LogConfig(mode=mode, linger_ms=0, reserve_bytes=0, **more)  # type: ignore[arg-type]


# the contract


@pytest.mark.services
@pytest.mark.parametrize(
    "mode",
    [one if one in SHORT else pytest.param(one, marks=pytest.mark.long) for one in LogMode],
)
def test_what_each_mode_promises_over_kill_9(tmp_path: Path, mode: LogMode) -> None:
    """All: nothing twice, no hole, no number used again, no loss unsaid.

    All but `none`: nothing accepted is lost, and what is derived is what it would be without a
    death. Synchronous ones: nothing that was received is lost either.
    """
    report = crash_runner(tmp_path, "--kills", str(KILLS), "--mode", mode.value)
    found: dict[str, int] = report["violations"]  # type: ignore[assignment]
    assert report["killed"] == KILLS, "the fault did not fire"
    received_lost = found.pop("received_lost")
    if mode is LogMode.NONE:
        for kind in ("lost", "not_derived", "miscounted"):
            assert found.pop(kind) > 0, f"the control does not see that {kind}"
        assert found == {name: 0 for name in NOTHING if name in found}
        return
    assert found == NOTHING
    assert (received_lost > 0) is not mode.flags.is_synchronous


@pytest.mark.parametrize("mode", DURABLE)
def test_nothing_leaves_before_it_is_durable(tmp_path: Path, mode: LogMode) -> None:
    seen: list[tuple[str, int]] = []
    sent = Sent()
    with opened(
        tmp_path,
        sent=sent,
        config=config(mode),
        failpoint=lambda place: seen.append((place, len(sent))),
    ) as events:
        events.start_sending()
        put(events, range(1, 4))
        sent.until(1)
    before = [count for place, count in seen[: [place for place, _ in seen].index("committed")]]
    assert ("inserted", 0) in seen
    assert set(before) == {0}, "a frame left before the commit"
    assert sent.ns() == [1, 2, 3]


@pytest.mark.parametrize("mode", LogMode)
def test_a_source_goes_on_at_once_or_when_its_reading_is_durable(
    tmp_path: Path, mode: LogMode
) -> None:
    async def take() -> int:
        with opened(tmp_path, config=config(mode)) as events:
            log = events.stream("speed")
            if mode is not LogMode.SBML:
                events.start_sending()
            await Intake("test", LogSink(log), Policy.BLOCK, SystemClock()).put([reading(1)])
            return log.waiting

    waiting = asyncio.run(take())
    if mode.flags.is_synchronous:
        assert waiting == 0
    else:
        assert waiting == 1, "it had to wait"


# recovery


@pytest.mark.parametrize("mode", DURABLE)
def test_after_a_restart_the_same_bytes_are_sent_again(tmp_path: Path, mode: LogMode) -> None:
    first, again = Sent(), Sent()
    with opened(tmp_path, sent=first, config=config(mode)) as events:
        events.start_sending()
        put(events, range(1, 31))
        first.until(3)
    with opened(tmp_path, sent=again, config=config(mode)) as events:
        events.start_sending()
        again.until(3)
    assert list(again) == list(first)


def test_with_both_logs_a_damaged_batch_costs_nothing(tmp_path: Path) -> None:
    """The bytes that were sent are there a second time; the control without them loses."""
    found = {}
    for mode in (LogMode.RBML_SBML, LogMode.RBML):
        first, again = Sent(), Sent()
        folder = tmp_path / mode.name
        with opened(folder, sent=first, config=config(mode)) as events:
            put(events, range(1, 11))
            events.start_sending()
            first.until(1)
        edit(folder, "UPDATE batches SET body = CAST(body || ' ' AS BLOB)")
        with opened(folder, sent=again, config=config(mode)) as events:
            events.start_sending()
            again.until(1)
        found[mode] = [out.gap for out in again]
    assert found == {LogMode.RBML_SBML: [None], LogMode.RBML: ["corrupt"]}


@pytest.mark.parametrize(
    ("before", "after"), [(a, b) for a in DURABLE for b in DURABLE if a is not b]
)
def test_a_mode_may_be_changed_between_two_starts(
    tmp_path: Path, before: LogMode, after: LogMode
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent, config=config(before)) as events:
        events.start_sending()
        put(events, range(1, 21))
        sent.until(2)
    with opened(tmp_path, sent=sent, config=config(after)) as events:
        events.start_sending()
        put(events, range(21, 31))
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "acknowledged"
        )
    assert sorted({n for out in sent for n in frame_of(out).fields["n"]}) == list(range(1, 31))  # type: ignore[type-var]


# sender-based: logged when it is sent


def test_while_nobody_sends_a_sender_based_log_waits_in_memory_up_to_its_bound(
    tmp_path: Path,
) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent, config=config(LogMode.SBML, queue_readings_max=20)) as events:
        log = events.stream("speed")
        ticket = log.append_all([reading(n) for n in range(1, 21)])
        with pytest.raises(LogBusyError):
            log.append(reading(21))
        assert events.status().stored_bytes == 0
        events.start_sending()
        assert log.wait_accepted(ticket, timeout_s=PATIENCE_S)
        sent.until(2)
        for n in range(21, 200):
            sent.acknowledge(events)
            assert log.wait_for_room(timeout_s=PATIENCE_S)
            ticket = log.append(reading(n))
        wait_until(
            lambda: sent.acknowledge(events) or log.accepted_through >= ticket, "all are logged"
        )
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "acknowledged"
        )
    assert sent.ns() == list(range(1, 200))


def test_an_orderly_end_logs_what_waits_to_be_sent(tmp_path: Path) -> None:
    with opened(tmp_path, config=config(LogMode.SBML)) as events:
        events.stream("speed").append(reading(1))
    sent = Sent()
    with opened(tmp_path, sent=sent, config=config(LogMode.SBML)) as events:
        events.start_sending()
        assert sent.until(1)[0].fields["n"] == [1]


# receiver-based: logged before it is processed


def test_a_synchronous_log_hands_nothing_out_before_it_is_logged(tmp_path: Path) -> None:
    """The control is hybrid logging, which does."""
    early: dict[LogMode, list[int]] = {LogMode.RBML: [], LogMode.HML: []}
    for mode, found in early.items():
        consumers = []

        def look(place: str, found: list[int] = found, consumers: list = consumers) -> None:  # type: ignore[type-arg]
            if place == "inserted" and consumers:
                found.append(
                    sum(len(item.readings) for item in consumers[0]._tails["speed"]._parts)
                )

        with opened(tmp_path / mode.name, config=config(mode), failpoint=look) as events:
            consumers.append(events.open_consumer("mean", ["speed"]))
            put(events, range(1, 4))
    assert early == {LogMode.RBML: [0], LogMode.HML: [3]}


# none


def test_without_a_log_nothing_is_on_the_disk_and_what_was_lost_is_said(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent, config=config(LogMode.NONE)) as events:
        events.start_sending()
        put(events, range(1, 6))
        sent.until(1)
        sent.acknowledge(events)
        wait_until(lambda: not events.status().backlog_readings, "acknowledged")
        events.stop_sending()
        put(events, range(6, 13))
        assert not (tmp_path / LOG_NAME).exists()
        shutil.copytree(tmp_path, tmp_path / "crash")
    again = Sent()
    with opened(tmp_path / "crash", sent=again, config=config(LogMode.NONE)) as events:
        events.start_sending()
        again.until(1)
        assert (again[0].count, again[0].gap) == (7, "not_logged")
        assert events.epoch > sent[0].key.epoch


def test_memory_is_bounded_by_the_queue_where_there_is_no_log(tmp_path: Path) -> None:
    with opened(tmp_path, config=config(LogMode.NONE, queue_bytes_max=1 << 20)) as events:
        for at in range(0, 60_000, 2_000):
            put(events, range(at, at + 2_000))
        status = events.status()
    assert status.stored_bytes <= 1 << 20
    assert status.lost["quota"] > 0
