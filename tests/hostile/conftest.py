"""One world for all rows: a row has devices and streams of its own, and undoes what it changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile import victims
from tests.hostile.world import Victim, World, world
from tests.services import STAYS, run_kafka


@pytest.fixture(scope="package")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hostile")
    with (
        run_kafka(folder / "kafka", *STAYS) as node,
        world(node, folder, "attacker", "spammer", "thief", "liar", "replayer", "revoked") as made,
    ):
        yield made


@pytest.fixture
def victim(here: World) -> Iterator[Victim]:
    with here.victim() as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the victims saw; of a run in several processes nothing, for each has its own rows."""
    if victims.ROWS:
        terminalreporter.section("what victims saw (median / one of twenty)")
        terminalreporter.write_line("\n".join(victims.table()))
