"""Of two concurrent changes of a row the second is refused."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from edgewake.cloud.ops.services.versions import is_same, next_stamp
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.ops.named_set import NamedSet, SetText
from tests.ops.service import Ops, running
from tests.services import Kafka, wait_until

ROUNDS: Final = 6
"""Times that two servers are asked at the same moment."""
PATHS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/boards/of_two_servers": {"title": "{}"},
    "/v1/sets/of_two_servers": {"description": "{}", "members": []},
    "/v1/publications/of_two_servers": {"description": "{}", "streams": ["s"]},
    "/v1/alerts/of_two_servers": {"text": "{}", "stream": "s", "when": "v > 1"},
}
"""What is kept with a version → how it is put."""

KEPT = NamedSet(name="s", members=("a",), version=3, changed_at=1, changed_by="anna")


def test_a_change_of_the_newest_version_or_of_any_is_the_next_one() -> None:
    for version in (3, None):
        assert next_stamp("set 's'", KEPT, version, by="ben", now=9) == {
            "version": 4,
            "changed_at": 9,
            "changed_by": "ben",
        }
    assert next_stamp("set 's'", None, None, by="ben", now=9)["version"] == 1


@pytest.mark.parametrize(
    ("before", "why"), [(KEPT, "version 3 now, changed by anna"), (None, "was removed meanwhile")]
)
def test_a_change_of_an_older_version_is_refused_with_what_happened(
    before: NamedSet | None, why: str
) -> None:
    with pytest.raises(Problem, match=why) as refusal:
        next_stamp("set 's'", before, 2, by="ben", now=9)
    assert refusal.value.status == 409


def test_who_changed_it_and_when_is_no_difference() -> None:
    assert is_same(KEPT, SetText(members=("a",)))
    assert not is_same(KEPT, SetText(members=("a", "b")))


def put(server: Ops, path: str, who: str, version: int) -> tuple[int, dict[str, Any]]:
    body = {
        name: value.format(who) if isinstance(value, str) else value
        for name, value in PATHS[path].items()
    }
    answer = server.client.put(path, json=body, params={"version": version})
    return answer.status_code, answer.json()


def version_at(server: Ops, path: str) -> tuple[int, str]:
    answer = server.client.get(path)
    if answer.status_code == 404:
        return 0, ""
    row = answer.json()
    row = row.get("rule", row)
    return row["version"], row.get("title") or row.get("description") or row.get("text")


def knows(server: Ops, path: str, row: tuple[int, str]) -> bool:
    return version_at(server, path) == row


@pytest.mark.services
def test_of_two_servers_that_change_a_row_at_the_same_moment_one_is_refused(
    kafka: Kafka, tmp_path: Path
) -> None:
    """The one that was told 200 has it: at both servers, and at one that starts afterwards."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    kept: dict[str, tuple[int, str]] = {}
    with (
        running(kafka.bootstrap, tmp_path / "a") as first,
        running(kafka.bootstrap, tmp_path / "b") as second,
        ThreadPoolExecutor(2) as pool,
    ):
        for path in PATHS:
            for number in range(ROUNDS):
                makers = [f"{number}a", f"{number}b"]
                answers = list(
                    pool.map(put, (first, second), (path, path), makers, (number, number))
                )
                assert sorted(status for status, _ in answers) == [200, 409], answers
                at = [status for status, _ in answers].index(200)
                assert answers[1 - at][1]["type"].endswith(":changed_meanwhile"), answers
                kept[path] = (number + 1, makers[at])
                for server in (first, second):
                    wait_until(partial(knows, server, path, kept[path]), "it is known there")
        with running(kafka.bootstrap, tmp_path / "c") as third:
            assert {path: version_at(third, path) for path in PATHS} == kept
            for path in PATHS:
                assert third.client.delete(path).status_code == 204
