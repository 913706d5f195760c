"""Fields are chosen, renamed and left out."""

from __future__ import annotations

from tests.edge.processors.helpers import at, chain, made


def test_select_drops_renames_and_swaps():
    assert made(
        chain({"type": "select", "drop": ["y"], "rename": {"x": "z"}}), [at(0, x=1, y=2, k=3)]
    ) == [at(0, k=3, z=1)]
    assert made(chain({"type": "select", "keep": ["x"]}), [at(0, x=1, y=2), at(1, y=2)]) == [
        at(0, x=1)
    ]
    assert made(chain({"type": "select", "rename": {"x": "y", "y": "x"}}), [at(0, x=1, y=2)]) == [
        at(0, x=2, y=1)
    ]
    assert made(chain({"type": "select", "rename": {"x": "y"}}), [at(0, x=1, y=2)]) == [at(0, y=1)]
