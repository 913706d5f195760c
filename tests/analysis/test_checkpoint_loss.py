"""A power cut or a restored copy takes checkpoint files back: the results still equal the oracle, each batch is emitted once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("damage", [lose_last_batch, _empty_offsets, _empty_commits, _tear_both, _lose_metadata])
def test_lost_files_at_the_end_of_a_checkpoint_change_no_result(analysis: Analysis, feed: Feed, damage: Callable[[Path], None]) -> None:
    (query,) = registered(sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream])
    with analysis.running([query], feed) as lane:
        for i in range(3):
            feed.send([T0 + i], device=f"d{i % 2}", speed=[1.0 + i])
            catch_up(lane, feed)
    damage(lane.checkpoint)
    feed.send([T0 + 10], device="d1", speed=[10.0])
    feed.send([T0 + 11], device="d2", speed=[5.0])
    feed.flush()
    with analysis.running([query], feed) as lane:
        feed.send([T0 + 200_000], device="d1", speed=[1.0])
        catch_up(lane, feed)
    _check(feed, query.query.name)
    assert watermarks(feed.config, query.query.name)[-1] > T0 + 60_000, "the first window was said to be final"


def test_an_older_copy_of_a_checkpoint_goes_on_without_repeating_or_leaving_out(analysis: Analysis, feed: Feed, tmp_path: Path) -> None:
    """In one batch what the lost ones had and what is new, and in batches of one record, some of which are old."""
    (query,) = registered(sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream])
    with analysis.running([query], feed) as lane:
        feed.send([T0], speed=[1.0])
        catch_up(lane, feed)
    shutil.copytree(lane.checkpoint, tmp_path / "copy")
    with analysis.running([query], feed) as lane:
        for i in range(4):
            feed.send([T0 + 1 + i], device=f"d{i}", speed=[2.0])
            catch_up(lane, feed)
    for records_max in (1, 1000):
        shutil.rmtree(lane.checkpoint)
        shutil.copytree(tmp_path / "copy", lane.checkpoint)
        for i in range(3):
            feed.send([T0 + 100 + records_max + i], device=f"d{i}", speed=[4.0])
        with analysis.with_config(batch_records_max=records_max).running([query], feed) as lane:
            pass
        _check(feed, query.query.name)


def _check(feed: Feed, name: str) -> None:
    rows = results(feed.config, name)
    found = {place: row["total"] for place, row in truth(rows, "device").items()}
    expected = windows(feed.sent, 60_000, 60_000, lambda reading: (reading["device"],), "speed")
    assert found == {place: sum(values) for place, values in expected.items()}
    places = [(row["window_start"], row["device"], row["revision"]) for row in rows]
    assert len(places) == len(set(places))
