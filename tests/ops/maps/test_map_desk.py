"""What is refused of maps for all bridges, before any bridge hears of it, and who has a number
where two servers push at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.maps.map_desk import MapDesk
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import Change, OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.pushed_maps import KEPT, MapsText, MapVersions, PushedMaps, key_of
from tests.ops.service import Ops, running
from tests.services import Kafka, wait_until

ROUNDS: Final = 6
"""Times that two servers are asked at the same moment."""
GOOD = 'presets = ["tasmota"]\n'
OLD = PushedMaps(version=4, text=GOOD, changed_at=1, changed_by="anna")


@pytest.fixture
def desk() -> Iterator[MapDesk]:
    """One with a version; what is refused reaches no Kafka, so none is there."""
    tables, clock = OpsTables(), SystemClock()
    tables.apply(Change(topics.MAPS, "4|a", OLD.model_dump_json().encode()), now=2)
    writer = TableWriter(KafkaConfig(bootstrap="127.0.0.1:1"), tables, clock)
    yield MapDesk(writer, tables, clock, lambda: "b")
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
    assert desk.versions() == [OLD]


async def test_what_changes_nothing_is_not_written(desk: MapDesk) -> None:
    assert await desk.push(MapsText(text=GOOD), version=4, by="ben") == OLD
    assert desk.version(4) == OLD
    with pytest.raises(Problem, match="no version 5"):
        desk.version(5)


def row(version: int, by: str) -> bytes:
    made = PushedMaps(version=version, text=GOOD, changed_at=1, changed_by=by)
    return made.model_dump_json().encode()


def test_the_first_record_of_a_number_has_it_and_the_others_are_known_to_be_removed() -> None:
    kept = MapVersions()
    for key, by in (("1|a", "ann"), ("1|b", "ben"), ("1|a", "ann")):
        kept.put(key, row(1, by))
    kept.put("2|b", row(2, "ben"))
    assert [(one.version, one.changed_by) for one in kept.rows.values()] == [(1, "ann"), (2, "ben")]
    assert kept.keys_before(2) == ["1|b", "1|a"]
    for key in kept.keys_before(2):
        kept.put(key, None)
    assert (kept.keys_before(3), kept.newest) == (["2|b"], kept.rows["2|b"])
    with pytest.raises(ValueError, match="has version 3"):
        kept.put(key_of(4, "a"), row(3, "ann"))


def pushed(server: Ops, text: str, **words: int) -> tuple[int, dict[str, Any]]:
    answer = server.client.put("/v1/maps", json={"text": text}, params=words)
    return answer.status_code, answer.json()


def listed(server: Ops) -> dict[int, str]:
    """Version → text."""
    found = server.client.get("/v1/maps").json()["items"]
    return {
        one["version"]: server.client.get(f"/v1/maps/{one['version']}").json()["text"]
        for one in found
    }


def both_know(first: Ops, second: Ops, version: int) -> bool:
    return max(listed(first)) == max(listed(second)) == version


@pytest.mark.long
@pytest.mark.services
def test_two_servers_that_push_at_the_same_moment_never_share_a_number(
    kafka: Kafka, tmp_path: Path
) -> None:
    """Both may have their way one after the other; of two made of one version, one has it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        running(kafka.bootstrap, tmp_path / "a") as first,
        running(kafka.bootstrap, tmp_path / "b") as second,
        ThreadPoolExecutor(2) as pool,
    ):
        made: dict[int, str] = {}
        for number in range(ROUNDS):
            texts = [f"{GOOD}# {number} {name}\n" for name in "ab"]
            answers = list(pool.map(pushed, (first, second), texts))
            assert [status for status, _ in answers] == [200, 200]
            made |= {said["version"]: text for (_, said), text in zip(answers, texts, strict=True)}
        assert len(made) == 2 * ROUNDS
        for number in range(ROUNDS):
            newest = max(made)
            wait_until(partial(both_know, first, second, newest), "both know it")
            texts = [f"{GOOD}# {number} of {newest} {name}\n" for name in "ab"]
            answers = list(pool.map(partial(pushed, version=newest), (first, second), texts))
            assert sorted(status for status, _ in answers) == [200, 409], answers
            at = [status for status, _ in answers].index(200)
            made[answers[at][1]["version"]] = texts[at]
        last = dict(sorted(made.items())[-KEPT:])
        wait_until(lambda: listed(first) == listed(second), "both list the same")
        assert last.items() <= listed(first).items()
