"""The vectors: what every implementation of the sequencer must reproduce.

It knows nothing of ours but `accept`, `time` and `restart`.
"""

import json
from typing import Any

import pytest

from tests.house.source import ROOT
from tests.sequencer.ordering import Order

VECTORS = [
    json.loads(line) for line in (ROOT / "cloud/sequencer/vectors.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_is_reproduced(vector: dict[str, Any]) -> None:
    order = Order(**vector.get("bounds", {}))
    for step in vector["steps"]:
        out = (
            order.accept(step["record"])
            if "record" in step
            else order.time(step["time"])
            if "time" in step
            else order.restart()
        )
        assert (step, out) == (step, step["out"])


def test_every_statement_and_discipline_occurs_in_the_vectors() -> None:
    steps = [step for vector in VECTORS for step in vector["steps"]]
    assert {one["statement"] for step in steps for one in step["out"] if "statement" in one} == {
        "open",
        "missing",
        "unknown_before",
        "restarted",
    }
    assert {step["record"].get("discipline", "ordered") for step in steps if "record" in step} == {
        "ordered",
        "numbered",
        "free",
    }
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)
