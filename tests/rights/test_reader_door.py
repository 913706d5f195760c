"""A hostile neighbour behind the same address keeps out no token, nor who came in before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest

from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.shown_keys import TOO_MANY_TRIES
from edgewake.cloud.rights.tokens import Refused
from edgewake.cloud.rights.tries import OWN_MAX
from edgewake.cloud.web.http_part import Problem
from tests.push.builders import ManualClock
from tests.rights.endings import ROLES, issuer
from tests.rights.forge import NOW_S, Maker, key_set, write

ADDRESS: Final = "192.0.2.1"
EACH_S: Final = 0.2
"""Between two wrong keys of the neighbour."""


class World:
    """A server with one issuer, and one address."""

    def __init__(self, folder: Path, key: str = "everything-key-0001") -> None:
        self.clock, self.maker = ManualClock(round(NOW_S * 1000)), Maker()
        self.config = RightsConfig(
            roles=ROLES,
            issuers=(issuer(jwks_file=write(folder / "keys.json", key_set(self.maker))),),
            key_file=write(folder / "keys", f"board everything {key}\n"),
        )
        self.restart()
        self._guesses = 0

    def restart(self) -> None:
        """A process that has seen nobody."""
        self.door = ReaderDoor(Rights(self.config, self.clock), self.clock)

    async def shown(self, credential: bytes) -> int:
        """The status of who shows it."""
        try:
            await self.door.find(credential, ADDRESS)
        except Refused:
            return 401
        except Problem as problem:
            return problem.status
        return 200

    async def guess(self) -> int:
        """A key that nobody has."""
        self._guesses += 1
        return await self.shown(f"guess-{self._guesses:015}".encode())

    async def guess_all(self) -> None:
        """Use up the tries of the address."""
        while await self.guess() != TOO_MANY_TRIES:
            pass


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_neighbour_that_guesses_keeps_no_token_out(world: World) -> None:
    """Nobody guesses a signature: one that never came in was let in 3 times of 85."""
    found = []
    for number in range(85):
        guessed = await world.guess()
        world.clock.advance(EACH_S)
        found.append(await world.shown(world.maker.token(sub=f"anna-{number}")))
    assert found == [200] * 85
    assert guessed == TOO_MANY_TRIES, "control: the neighbour waits"


async def test_wrong_signatures_are_counted_once_they_were_verified(world: World) -> None:
    forged = [Maker().token(sub=f"anna-{number}") for number in range(2 * OWN_MAX)]
    found = [await world.shown(token) for token in forged]
    assert found == [401] * OWN_MAX + [TOO_MANY_TRIES] * OWN_MAX
    assert await world.shown(world.maker.token()) == 200


async def test_tokens_of_an_issuer_that_changed_its_keys_are_no_guesses(world: World) -> None:
    fresh = Maker(kid="k2")
    tokens = [fresh.token(sub=f"anna-{number}") for number in range(2 * OWN_MAX)]
    assert [await world.shown(token) for token in tokens] == [401] * 2 * OWN_MAX
    assert await world.shown(b"everything-key-0001") == 200


async def test_a_key_in_the_form_of_a_token_can_be_guessed_as_any_other(tmp_path: Path) -> None:
    key = Maker().token().decode()
    world = World(tmp_path, key)
    await world.guess_all()
    assert await world.shown(key.encode()) == TOO_MANY_TRIES


async def test_a_process_that_begins_has_forgotten_by_which_keys_clients_came_in(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """As docs/rights.md says."""
    caplog.set_level(logging.ERROR)
    key = b"everything-key-0001"
    assert await world.shown(key) == 200
    await world.guess_all()
    assert await world.shown(key) == 200
    world.restart()
    await world.guess_all()
    assert await world.shown(key) == TOO_MANY_TRIES
