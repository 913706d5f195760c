"""A power cut or a restored copy takes checkpoint files back: the results still equal the oracle,
each batch is emitted once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from edgewake.cloud import failpoint
from edgewake.cloud.analysis.checkpoints import checkpoint
from edgewake.cloud.analysis.lanes import micro_batch
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.batch_commit import Novelty
from edgewake.cloud.analysis.results.transaction import LaneTransactions
from edgewake.protocol import topics
from edgewake.protocol.errors import EdgewakeError
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    lose_last_batch,
    newest,
    registered,
    results,
    sql,
    truth,
    watermarks,
    windows,
)
from tests.services import wait_until

MINUTE = "window(event_time, '1 minute'), device"


def _empty_offsets(checkpoint: Path) -> None:
    newest(checkpoint, "offsets").write_bytes(b"")


def _empty_commits(checkpoint: Path) -> None:
    newest(checkpoint, "commits").write_bytes(b"")


def _tear_both(checkpoint: Path) -> None:
    for folder in ("offsets", "commits"):
        path = newest(checkpoint, folder)
        path.write_bytes(path.read_bytes()[:7])


def _lose_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lose_last_batch, marks=pytest.mark.long),
        pytest.param(_empty_offsets, marks=pytest.mark.long),
        pytest.param(_empty_commits, marks=pytest.mark.long),
        _tear_both,
        pytest.param(_lose_metadata, marks=pytest.mark.long),
    ],
)
def test_lost_files_at_the_end_of_a_checkpoint_change_no_result(
    analysis: Analysis, feed: Feed, damage: Callable[[Path], None]
) -> None:
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )
    with analysis.running([query], feed) as running:
        for i in range(3):
            feed.send([T0 + i], device=f"d{i % 2}", speed=[1.0 + i])
            catch_up(running, feed)
    damage(running.checkpoint)
    feed.send([T0 + 10], device="d1", speed=[10.0])
    feed.send([T0 + 11], device="d2", speed=[5.0])
    feed.flush()
    with analysis.running([query], feed) as running:
        feed.send([T0 + 200_000], device="d1", speed=[1.0])
        catch_up(running, feed)
    _check(feed, query.query.name)
    assert watermarks(feed.config, query.query.name)[-1] > T0 + 60_000, (
        "the first window was said to be final"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_empty_offsets, marks=pytest.mark.long),
        _tear_both,
        pytest.param(_lose_metadata, marks=pytest.mark.long),
    ],
)
def test_without_mending_lost_files_end_the_lane_and_never_make_a_wrong_result(
    analysis: Analysis, feed: Feed, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of the test before: Spark refuses what it finds, loudly; mended, the same folder goes
    on.
    """
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )
    with analysis.running([query], feed) as running:
        for i in range(2):
            feed.send([T0 + i], speed=[1.0 + i])
            catch_up(running, feed)
    damage(running.checkpoint)
    feed.send([T0 + 10], speed=[10.0])
    feed.flush()
    before = results(feed.config, query.query.name)
    with monkeypatch.context() as unprotected:
        unprotected.setattr(checkpoint, "mend", lambda *_: None)
        broken = analysis.lane([query], [feed.stream])
        try:
            with suppress(EdgewakeError, PySparkException):
                broken.start()
                wait_until(broken.failure, "it ends by itself")
        finally:
            broken.stop()
        assert not broken.finished, "Spark refused"
    assert results(feed.config, query.query.name) == before
    analysis.run([query], feed)
    _check(feed, query.query.name)


@pytest.mark.long
def test_an_older_copy_of_a_checkpoint_goes_on_without_repeating_or_leaving_out(
    analysis: Analysis, feed: Feed, tmp_path: Path
) -> None:
    """In one batch what the lost ones had and what is new, and in batches of one record, some of
    which are old.
    """
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )
    with analysis.running([query], feed) as running:
        feed.send([T0], speed=[1.0])
        catch_up(running, feed)
    shutil.copytree(running.checkpoint, tmp_path / "copy")
    with analysis.running([query], feed) as running:
        for i in range(4):
            feed.send([T0 + 1 + i], device=f"d{i}", speed=[2.0])
            catch_up(running, feed)
    for records_max in (1, 1000):
        shutil.rmtree(running.checkpoint)
        shutil.copytree(tmp_path / "copy", running.checkpoint)
        for i in range(3):
            feed.send([T0 + 100 + records_max + i], device=f"d{i}", speed=[4.0])
        with analysis.with_config(batch_records_max=records_max).running([query], feed) as running:
            pass
        _check(feed, query.query.name)


def _before_it_is_told(fault: pytest.MonkeyPatch) -> None:
    fault.setattr(checkpoint, "sync_offsets", _break_off)


def _in_the_middle_of_the_transaction(fault: pytest.MonkeyPatch) -> None:
    produce = LaneTransactions._produce

    def produce_some(self: LaneTransactions, output: emit.Output) -> None:
        produce(self, output)
        if output.topic.startswith(topics.QUERY_PREFIX):
            _break_off()

    fault.setattr(LaneTransactions, "_produce", produce_some)


def _before_spark_knows_of_it(fault: pytest.MonkeyPatch) -> None:
    fault.setattr(failpoint, "reach", _break_off)


def _break_off(*_: object) -> None:
    raise OSError("broken off")


@pytest.mark.long
def test_a_driver_that_breaks_off_anywhere_tells_each_batch_once(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next one finds on disk and in Kafka is what a kill at the place leaves."""
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )

    def break_off(at: Callable[[pytest.MonkeyPatch], None]) -> None:
        feed.send([T0 + len(feed.sent)], speed=[1.0])
        feed.flush()
        with monkeypatch.context() as fault:
            at(fault)
            broken = analysis.lane([query], [feed.stream])
            broken.start()
            wait_until(broken.failure, "it breaks off")
            broken.stop()
            assert "broken off" in str(broken.failure())

    def told() -> list[float]:
        return [row["total"] for row in results(feed.config, query.query.name)]

    for place in (_before_it_is_told, _in_the_middle_of_the_transaction, _before_spark_knows_of_it):
        break_off(place)
    assert told() == [1.0], (
        "only the last one got as far as to tell the batch that the first one had planned"
    )
    analysis.run([query], feed)
    _check(feed, query.query.name)
    assert told() == [1.0, 3.0]

    break_off(_before_spark_knows_of_it)
    monkeypatch.setattr(micro_batch, "novelty", lambda *_: Novelty.ALL)
    with analysis.running([query], feed) as again:
        wait_until(lambda: again.finished, "the batch that broke off is computed again")
    assert told() == [1.0, 3.0, 4.0, 4.0], (
        "control: without the offsets in the lane's record it is told twice"
    )


def _check(feed: Feed, name: str) -> None:
    rows = results(feed.config, name)
    found = {place: row["total"] for place, row in truth(rows, "device").items()}
    expected = windows(feed.sent, 60_000, 60_000, lambda reading: (reading["device"],), "speed")
    assert found == {place: sum(values) for place, values in expected.items()}
    places = [(row["window_start"], row["device"], row["revision"]) for row in rows]
    assert len(places) == len(set(places))
