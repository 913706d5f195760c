"""What is refused of maps for all bridges, before any bridge hears of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.maps.map_desk import MapDesk
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import Change, OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.pushed_maps import MapsText, PushedMaps

GOOD = 'presets = ["tasmota"]\n'
KEPT = PushedMaps(version=4, text=GOOD, changed_at=1, changed_by="anna")


@pytest.fixture
def desk() -> Iterator[MapDesk]:
    """One with a version; what is refused reaches no Kafka, so none is there."""
    tables, clock = OpsTables(), SystemClock()
    tables.apply(Change(topics.MAPS, "4", KEPT.model_dump_json().encode()), now=2)
    writer = TableWriter(KafkaConfig(bootstrap="127.0.0.1:1"), tables, clock)
    yield MapDesk(writer, tables, clock)
    writer.close()


@pytest.mark.parametrize(
    ("text", "version", "status", "says"),
    [
        (GOOD + "#", 3, 409, "maps is version 4 now, changed by anna"),
        ("[[map]]\n", None, 422, "topic: is missing"),
        ('[[map]]\ntopic = "a/{device}"\n', None, 422, "device is missing"),
        ('[[map]]\ntopic = "#"\ndevice = "d"\nstream = "s"\n', None, 422, "Edgewake itself"),
        ('presets = ["tasmot"]\n', 4, 422, "did you mean 'tasmota'?"),
        ("# nothing\n", None, 422, "expected at least one"),
    ],
)
async def test_maps_that_no_bridge_could_use_or_of_another_version_are_refused(
    desk: MapDesk, text: str, version: int | None, status: int, says: str
) -> None:
    with pytest.raises(Problem) as refusal:
        await desk.push(MapsText(text=text), version=version, by="ben")
    assert refusal.value.status == status
    assert says in refusal.value.detail
    assert desk.versions() == [KEPT]


async def test_what_changes_nothing_is_not_written(desk: MapDesk) -> None:
    assert await desk.push(MapsText(text=GOOD), version=4, by="ben") == KEPT
    assert desk.version(4) == KEPT
    with pytest.raises(Problem, match="no version 5"):
        desk.version(5)
