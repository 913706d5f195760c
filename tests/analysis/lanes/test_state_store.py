"""What keeps the state, `state_store`: another one than before begins with no state, which is built
again.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edgewake.cloud.analysis.checkpoints.checkpoint import remove_other_format
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.spark.settings import STATE, StateStore, state_settings
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError
from tests.analysis.support import (
    STATE_MIB,
    T0,
    Analysis,
    Feed,
    registered,
    results,
    sql,
    stored,
    truth,
)

PROVIDER = f"{STATE}.providerClass"


def provider_of(lane: Lane) -> str:
    """Which class kept the state in the lane's last batch, as Spark wrote it down."""
    last = max((lane.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return str(orjson.loads(last.read_bytes().splitlines()[1])["conf"][PROVIDER])


def test_another_store_is_built_again_from_the_stream_and_back(
    analysis: Analysis, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """Who meets a wrong state can go back to Spark's store, and loses nothing."""
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 hour'), device"),
        streams=[feed.stream],
    )
    stores: tuple[StateStore, ...] = ("memory", "rocksdb", "rocksdb", "memory")
    totals = []
    for turn, store in enumerate(stores):
        feed.send([T0 + turn * 1_000], speed=[1.0])
        with stored(analysis.session, store):
            lane = analysis.with_config(state_store=store).run([query], feed)
        assert provider_of(lane) == state_settings(store, STATE_MIB)[PROVIDER]
        totals += [row["total"] for row in truth(results(feed.config, query.query.name)).values()]
    assert totals == [1.0, 2.0, 3.0, 4.0]
    removed = [
        record for record in caplog.records if getattr(record, "event", "") == "checkpoint.removed"
    ]
    assert len(removed) == 2, "once there and once back, and not where it stays"
    assert "lies in another store, and is built again" in removed[0].getMessage()


@pytest.mark.long
def test_without_that_spark_goes_on_with_the_store_of_the_checkpoint(
    analysis: Analysis, feed: Feed
) -> None:
    """The control: what the settings say is not enough, and nothing says so."""
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 hour'), device"),
        streams=[feed.stream],
    )
    feed.send([T0], speed=[1.0])
    lane = analysis.run([query], feed)
    mark = lane.checkpoint / "format"
    mark.write_text(mark.read_text() + " rocksdb")
    feed.send([T0 + 1_000], speed=[1.0])
    with stored(analysis.session, "rocksdb"):
        lane = analysis.with_config(state_store="rocksdb").run([query], feed)
    assert provider_of(lane) == state_settings("memory", STATE_MIB)[PROVIDER]


STEPS: tuple[tuple[int, StateStore, bool], ...] = (
    (3, "memory", False),
    (3, "memory", True),
    (3, "rocksdb", False),
    (3, "rocksdb", True),
    (4, "rocksdb", False),
    (4, "memory", False),
)


def test_a_checkpoint_of_the_same_columns_and_store_stays(tmp_path: Path) -> None:
    checkpoint = tmp_path / "lane"
    for form, store, stays in STEPS:
        remove_other_format(checkpoint, form, store)
        assert (checkpoint / "kept").exists() is stays, (form, store)
        (checkpoint / "kept").touch()


def test_rocksdb_gets_the_memory_that_the_state_may_have() -> None:
    found = state_settings("rocksdb", 96)
    assert found[f"{STATE}.rocksdb.maxMemoryUsageMB"] == "96"
    assert found[f"{STATE}.rocksdb.boundedMemoryUsage"] == "true"


def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="state_store = 'disk': expected memory or rocksdb"):
        parse(AnalysisConfig, {"state_store": "disk"}, "analysis.toml")
