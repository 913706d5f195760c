"""Settings on trial: from the message that brings them to the answer, through lives that end, disks
that are full and odd orders.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.settings import trial as module
from edgewake.edge.settings.settings import SettingsFile, SettingsState, Version, merged
from edgewake.edge.settings.trial import NOTE_AGAIN_S, Trial
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.downlink.down_message import Settings
from edgewake.protocol.downlink.downlink import Answer, AnswerState
from edgewake.protocol.errors import ConfigError
from tests.services import PATIENCE_S

OWN = {"device": "car", "data_dir": "/tmp/x", "downlink": {"settings": True}}
ONE, TWO = Version("i1", 1, "log.linger_ms = 1"), Version("i2", 2, "log.linger_ms = 2")
HEALTH_S = 10.0


def settings(version: Version) -> Settings:
    return Settings(id=version.id, version=version.version, text=version.text)


class FullDisk(SettingsFile):
    """Takes nothing for a while."""

    refusals = 0

    def write(self, state: SettingsState) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(28, "No space left on device")
        super().write(state)


class Life:
    """One life of an agent that may be set from afar."""

    def __init__(
        self,
        directory: Path,
        *,
        healthy_after_s: float = float("inf"),
        refusals: int = 0,
        full_at_start: bool = False,
    ) -> None:
        self.file = FullDisk(OWN, directory)
        self.file.refusals = refusals if full_at_start else 0
        self.linger_ms = self.file.start().log.linger_ms
        self.file.refusals = refusals
        self.clock = FakeClock()
        self.said: list[Answer] = []
        self.restarts = 0
        self.trial = Trial(
            self.file,
            self.clock,
            health_s=HEALTH_S,
            is_healthy=lambda: self.clock.monotonic_s() >= healthy_after_s,
            restart=self._restart,
            say=self.said.append,
        )

    def _restart(self) -> None:
        self.restarts += 1

    async def gets(self, version: Version) -> Answer | None:
        """As the inbox gives a message: first the check, then the deed; None: this life ends."""
        message = settings(version)
        return self.trial.check(message) or await asyncio.wait_for(
            self.trial.apply(message), PATIENCE_S
        )


@pytest.fixture(autouse=True)
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same function, without a process for each."""

    async def fault_in(own: Mapping[str, Any], text: str, where: str) -> str | None:
        try:
            merged(own, text, where)
        except ConfigError as error:
            return str(error)
        return None

    monkeypatch.setattr(module, "fault_in", fault_in)


async def test_new_settings_are_tried_by_the_next_life_and_answered_when_they_have_proven_good(
    tmp_path: Path,
) -> None:
    first = Life(tmp_path)
    assert (await first.gets(ONE), first.restarts, first.trial.version) == (None, 1, 1)
    second = Life(tmp_path, healthy_after_s=3)
    answering = asyncio.create_task(second.gets(ONE))
    await second.trial.watch()
    answer = await answering
    assert [one.state for one in second.said] == [AnswerState.TRYING]
    assert (second.linger_ms, answer and (answer.state, answer.version), second.restarts) == (
        1.0,
        (AnswerState.DONE, 1),
        0,
    )
    third = Life(tmp_path)
    assert (third.linger_ms, third.file.read()) == (1.0, SettingsState(good=ONE))
    await third.trial.watch()
    assert third.said == [], "nothing is on trial"


async def test_settings_under_which_the_cloud_hears_nothing_are_given_up_and_that_is_answered(
    tmp_path: Path,
) -> None:
    await Life(tmp_path).gets(ONE)
    trying = Life(tmp_path)
    answering = asyncio.create_task(trying.gets(ONE))
    await trying.trial.watch()
    assert (await answering, trying.restarts) == (None, 1)
    assert HEALTH_S <= trying.clock.monotonic_s() < HEALTH_S + 1
    after = Life(tmp_path)
    answer = await after.gets(ONE)
    assert (after.linger_ms, answer and answer.state, answer and answer.version) == (
        200.0,
        AnswerState.ROLLED_BACK,
        0,
    )
    assert answer is not None
    assert answer.detail == "the cloud acknowledged nothing within 10 s"


@pytest.mark.parametrize(
    ("healthy_after_s", "is_good"),
    [(HEALTH_S - 0.1, True), (HEALTH_S + 1, False)],
    ids=["in time", "too late"],
)
async def test_an_acknowledgement_counts_when_it_comes_in_time(
    tmp_path: Path, healthy_after_s: float, is_good: bool
) -> None:
    await Life(tmp_path).gets(ONE)
    trying = Life(tmp_path, healthy_after_s=healthy_after_s)
    await trying.trial.watch()
    assert (trying.file.read().good == ONE, trying.restarts == 0) == (is_good, is_good)


async def test_a_life_that_ended_amid_its_trial_gives_it_up_and_the_message_is_answered_once_more(
    tmp_path: Path,
) -> None:
    await Life(tmp_path).gets(ONE)
    Life(tmp_path)
    after = Life(tmp_path)
    answer = await after.gets(ONE)
    assert (after.linger_ms, answer and answer.state) == (200.0, AnswerState.ROLLED_BACK)
    assert answer is not None
    assert "ended before they had proven good" in answer.detail


KNOWN = SettingsState(good=ONE, failed=TWO, why="it died")


@pytest.mark.parametrize(
    ("state", "asked", "answer", "says"),
    [
        pytest.param(SettingsState(), Version("n", 1, ""), None, "", id="the first"),
        pytest.param(KNOWN, Version("n", 3, ""), None, "", id="a newer one"),
        pytest.param(
            KNOWN,
            Version("n", 2, ""),
            AnswerState.REFUSED,
            "version 2: expected one after 2",
            id="the number of one that failed",
        ),
        pytest.param(
            KNOWN,
            Version("n", 1, ""),
            AnswerState.REFUSED,
            "version 1: expected one after 2",
            id="an older one",
        ),
        pytest.param(KNOWN, ONE, AnswerState.DONE, "", id="the good one again"),
        pytest.param(KNOWN, TWO, AnswerState.ROLLED_BACK, "it died", id="the failed one again"),
        pytest.param(SettingsState(good=ONE, trial=TWO), TWO, None, "", id="the one on trial"),
        pytest.param(
            SettingsState(trial=TWO),
            Version("n", 2, ""),
            AnswerState.REFUSED,
            "after 2",
            id="another with the number of that",
        ),
    ],
)
def test_settings_are_taken_in_the_order_of_their_numbers(
    tmp_path: Path, state: SettingsState, asked: Version, answer: AnswerState | None, says: str
) -> None:
    file = SettingsFile(OWN, tmp_path)
    file.write(state)
    trial = Trial(
        file,
        FakeClock(),
        health_s=1,
        is_healthy=lambda: True,
        restart=lambda: None,
        say=lambda _: None,
    )
    found = trial.check(settings(asked))
    assert (None if found is None else found.state) == answer
    assert says in (found.detail if found else "")


async def test_settings_that_cannot_be_used_are_refused_without_a_restart(tmp_path: Path) -> None:
    life = Life(tmp_path)
    answer = await life.gets(Version("x", 5, "device = 'other'"))
    assert answer is not None
    assert (answer.state, answer.version, life.restarts) == (AnswerState.REFUSED, 0, 0)
    assert "version 5: may not be set from afar: device" in answer.detail
    assert await life.gets(ONE) is None, "a version that was refused is no version that came"


async def test_settings_for_which_the_disk_has_no_room_are_answered_and_the_agent_lives_on(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, refusals=1)
    answer = await life.gets(ONE)
    assert answer is not None
    assert (answer.state, life.restarts) == (AnswerState.FAILED, 0)
    assert "cannot be kept: [Errno 28] No space left on device" in answer.detail
    assert (life.trial.version, life.file.read()) == (0, SettingsState())
    assert await life.gets(Version("i3", 1, "")) is None, "with room they are tried"


@pytest.mark.parametrize("healthy_after_s", [0.0, float("inf")], ids=["proven good", "given up"])
async def test_what_became_of_a_trial_is_kept_as_soon_as_the_disk_has_room(
    tmp_path: Path, healthy_after_s: float
) -> None:
    await Life(tmp_path).gets(ONE)
    trying = Life(tmp_path, healthy_after_s=healthy_after_s, refusals=3)
    began_s = trying.clock.monotonic_s()
    await trying.trial.watch()
    assert trying.clock.monotonic_s() - began_s >= 3 * NOTE_AGAIN_S
    assert (trying.file.read().trial, trying.trial.version) == (
        None,
        1 if healthy_after_s == 0 else 0,
    )


async def test_a_full_disk_at_a_start_keeps_no_device_down_and_tries_nothing_it_cannot_note(
    tmp_path: Path,
) -> None:
    """Twice: a start that would begin a trial, and one that would give it up."""
    Life(tmp_path).file.write(SettingsState(good=ONE).pushed(TWO))
    full = Life(tmp_path, refusals=3, full_at_start=True, healthy_after_s=0)
    assert (full.linger_ms, full.trial.version) == (1.0, 1), "the good ones"
    await full.trial.watch()
    assert (full.said, full.file.read()) == ([], SettingsState(good=ONE, trial=TWO))
    assert Life(tmp_path).linger_ms == 2.0, "with room it is tried"
    full = Life(tmp_path, refusals=3, full_at_start=True, healthy_after_s=0)
    assert (full.linger_ms, full.trial.version) == (1.0, 1), "its life ended amid the trial"
    await full.trial.watch()
    assert full.said == [], "no life proves good what it does not use"
    after = Life(tmp_path)
    assert (after.linger_ms, after.file.read().failed) == (1.0, TWO)


async def test_others_that_come_while_some_are_on_trial_are_tried_after_them(
    tmp_path: Path,
) -> None:
    """The log may have lost the message of those on trial."""
    await Life(tmp_path).gets(ONE)
    trying = Life(tmp_path, healthy_after_s=2)
    others = asyncio.create_task(trying.gets(TWO))
    await asyncio.sleep(0)
    assert not others.done()
    await trying.trial.watch()
    assert await asyncio.wait_for(others, PATIENCE_S) is None
    assert trying.restarts == 1
    assert trying.file.read() == SettingsState(good=ONE, trial=TWO)


async def test_others_that_come_while_a_trial_fails_wait_for_the_next_life(tmp_path: Path) -> None:
    await Life(tmp_path).gets(ONE)
    trying = Life(tmp_path)
    others = asyncio.create_task(trying.gets(TWO))
    await asyncio.sleep(0)
    await trying.trial.watch()
    assert (await asyncio.wait_for(others, PATIENCE_S), trying.restarts) == (None, 1)
    assert trying.file.read().failed == ONE
    assert await Life(tmp_path).gets(TWO) is None


async def test_an_older_version_that_waited_behind_a_trial_is_refused_after_it(
    tmp_path: Path,
) -> None:
    await Life(tmp_path).gets(TWO)
    trying = Life(tmp_path, healthy_after_s=1)
    late = asyncio.create_task(trying.trial.apply(settings(ONE)))
    await asyncio.sleep(0)
    await trying.trial.watch()
    answer = await asyncio.wait_for(late, PATIENCE_S)
    assert answer is not None
    assert (answer.state, answer.version, trying.restarts) == (AnswerState.REFUSED, 2, 0)


def test_every_field_of_the_state_comes_back_from_the_file(tmp_path: Path) -> None:
    file = SettingsFile(OWN, tmp_path / "new" / "folder")
    states = [
        SettingsState(),
        SettingsState(good=ONE),
        SettingsState(good=ONE, trial=TWO, is_begun=True),
        KNOWN,
    ]
    for state in states:
        file.write(state)
        assert file.read() == state
    assert {field.name for field in dataclasses.fields(SettingsState)} == {
        "good",
        "trial",
        "is_begun",
        "failed",
        "why",
    }
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("state", "used", "version", "latest"),
    [
        (SettingsState(), None, 0, 0),
        (SettingsState(good=ONE), ONE, 1, 1),
        (SettingsState(trial=TWO), TWO, 2, 2),
        (SettingsState(good=ONE, trial=TWO), TWO, 2, 2),
        (SettingsState(good=ONE, failed=TWO), ONE, 1, 2),
        (SettingsState(failed=TWO), None, 0, 2),
    ],
    ids=[
        "nothing was set",
        "good ones",
        "the first on trial",
        "others on trial",
        "others failed",
        "the first failed",
    ],
)
def test_what_is_in_use_and_the_greatest_number_that_came(
    state: SettingsState, used: Version | None, version: int, latest: int
) -> None:
    assert (state.used, state.version, state.latest) == (used, version, latest)


def test_a_pushed_version_replaces_one_that_waits_and_begins_anew() -> None:
    state = SettingsState(good=ONE).pushed(TWO).started()
    assert state.is_begun
    three = Version("i3", 3, "")
    assert state.pushed(three) == SettingsState(good=ONE, trial=three, is_begun=False)
    assert state.proven() == SettingsState(good=TWO)
    assert state.given_up("why") == SettingsState(good=ONE, failed=TWO, why="why")
