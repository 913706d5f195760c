"""Consumers that the configuration no longer names."""

from __future__ import annotations

from pathlib import Path

from edgewake.edge.log.forgetting import ACTIONS, forget_others
from tests.edge.helpers import opened


async def test_those_of_the_kind_that_are_not_wanted_go_and_others_stay(tmp_path: Path) -> None:
    names = [f"{ACTIONS}horn", f"{ACTIONS}lamp", "chain speed", "action"]
    with opened(tmp_path) as events:
        for name in names:
            await events.consumer(name, ["speed"])
        await forget_others(events, ACTIONS, [f"{ACTIONS}lamp"])
        assert events.consumers() == {f"{ACTIONS}lamp", "chain speed", "action"}


async def test_where_all_are_wanted_nothing_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        await events.consumer(f"{ACTIONS}horn", ["speed"])
        await forget_others(events, ACTIONS, [f"{ACTIONS}horn"])
        assert events.consumers() == {f"{ACTIONS}horn"}
