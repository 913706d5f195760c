"""What Grafana's Infinity source is answered: each question of the stream dashboard as the plug-in
asks it, on a running operations API, and the columns that its selectors take.

Grafana itself is no package of the registries that tests may use, so its contract is written down
here: GET with parameters, or POST with a raw body; `root_selector` leads to a list; each column's
selector is a path in its items, a number being a place in a list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.routes.sql import as_objects
from tests.deploy.test_grafana import DASHBOARDS
from tests.feeds import Feed
from tests.ops.conftest import Writer
from tests.ops.routes.test_summaries import HOUR, minutes
from tests.ops.service import Ops
from tests.ops.test_app import declare
from tests.services import wait_until

TARGETS = [panel["targets"][0] for panel in DASHBOARDS["stream"]["panels"]]


def ask(ops: Ops, target: dict[str, Any], variables: dict[str, str]) -> httpx.Response:
    """As the plug-in does, with Grafana's variables put in."""

    def filled(text: str) -> str:
        return reduce(
            lambda said, one: said.replace(f"${{{one[0]}}}", one[1]), variables.items(), text
        )

    options = target["url_options"]
    params = {str(one["key"]): filled(one["value"]) for one in options["params"]}
    body = filled(options["data"]) if "data" in options else None
    return ops.client.request(
        options["method"],
        filled(target["url"]),
        params=params,
        content=body,
        headers={"Content-Type": options.get("body_content_type", "application/json")},
    )


def at(item: Any, path: str) -> Any:
    """What a selector takes."""
    return reduce(
        lambda found, step: found[int(step)] if isinstance(found, list) else found[step],
        path.split("."),
        item,
    )


def rows(target: dict[str, Any], answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    items = at(answer.json(), target["root_selector"])
    return [
        {column["text"]: at(item, column["selector"]) for column in target["columns"]}
        for item in items
    ]


@pytest.mark.services
def test_each_panel_of_a_stream_finds_its_columns(
    ops: Ops, writer: Writer, kafka_config: KafkaConfig, unique: Callable[[str], str]
) -> None:
    feed = Feed(kafka_config)
    stream = feed.name
    declare(writer, stream)
    minutes(writer, stream, "n")
    feed.send("oven", 3)
    known = f"/v1/summaries?stream={stream}"
    wait_until(lambda: ops.client.get(known).json() != [], "it is summed up")
    until = {"__from": str(HOUR), "__to": str(HOUR + 3_600_000)}
    variables = {"stream": stream, "field": "n"} | until
    wait_until(
        lambda: len(rows(TARGETS[0], ask(ops, TARGETS[0], variables))) == 60,
        "all minutes are there",
    )
    first = rows(TARGETS[0], ask(ops, TARGETS[0], variables))[4]
    assert (first["least"], first["most"], first["time"]) == (1.5, 4.0, HOUR + 4 * 60_000)
    assert {row["readings"] for row in rows(TARGETS[1], ask(ops, TARGETS[1], variables))} == {3}
    (hour,) = rows(TARGETS[2], ask(ops, TARGETS[2], variables))
    assert 57 <= hour["p99"] <= 59
    (oven,) = rows(TARGETS[3], ask(ops, TARGETS[3], variables))
    assert (oven["device"], oven["value"]) == ("oven", 3.0)
    feed.close()


def test_columns_of_one_name_are_told_apart() -> None:
    answer = {"columns": [{"name": "a", "type": "INT"}] * 2, "rows": [[1, 2]], "is_cut": False}
    found = json.loads(as_objects(json.dumps(answer).encode()))
    assert found["rows"] == [{"a": 1, "a_2": 2}]
    assert [one["name"] for one in found["columns"]] == ["a", "a_2"]
