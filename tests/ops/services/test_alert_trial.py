"""Trials of rules: what would have fired is what fires, wherever the chart's steps lie."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import cast

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.alerts.condition import Condition
from edgewake.cloud.alerts.life import look, pass_time
from edgewake.cloud.ops.services.alert_trial import (
    EPISODES_MAX,
    STEPS,
    Episode,
    Trial,
    play,
    unknown,
)
from edgewake.protocol.ops.alert import Alert, Rule, State
from tests.alerts.build import at, rule

HOUR = 3600


class Row:
    """A record of a query's topic, as Kafka gives it."""

    def __init__(self, second: float, value: bytes | None, key: bytes | None = None) -> None:
        self._at, self._value, self._key = at(second), value, key

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at

    def topic(self) -> str:
        return "ew.query.rows"

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


def hot(second: float, temperature: object = 40, device: str = "car-1") -> Row:
    return Row(second, json.dumps({"device": device, "temperature": temperature}).encode())


def heard(second: float, device: bytes | None = b"car-1") -> Row:
    return Row(second, b"{}", device)


def of_rows(**more: object) -> Rule:
    return rule(query="rows", value="temperature", **more)


def tried(a_rule: Rule, rows: list[Row], *, seconds: float = HOUR) -> Trial:
    messages = cast("list[Message]", rows)
    return play(a_rule, messages, begin=at(0), end=at(seconds), is_cut=False)


def spans(trial: Trial) -> list[tuple[str, int, int | None]]:
    return [(one.key, one.begin, one.end) for one in reversed(trial.episodes)]


def test_one_that_fires_and_is_over_between_two_looks_of_one_step_is_an_episode() -> None:
    trial = tried(of_rows(for_s=10), [hot(0), hot(50, 20)])
    assert spans(trial) == [("car-1", at(10), at(50))]


def test_one_that_is_stale_and_fires_again_within_a_step_is_two_episodes() -> None:
    trial = tried(of_rows(stale_s=10), [hot(0), hot(50)])
    assert spans(trial) == [("car-1", at(0), at(10)), ("car-1", at(50), at(60))]


def test_one_that_was_over_long_enough_and_fires_again_within_a_step_is_two_episodes() -> None:
    trial = tried(of_rows(over_for_s=10), [hot(0), hot(5, 20), hot(50)])
    assert spans(trial) == [("car-1", at(0), at(15)), ("car-1", at(50), None)]


def test_a_silence_is_never_stale_for_the_judge_looks_at_it_again_and_again() -> None:
    quiet = rule(stream="rows", silent_s=60, stale_s=60)
    assert spans(tried(quiet, [heard(0), heard(1000)])) == [
        ("car-1", at(60), at(1000)),
        ("car-1", at(1060), None),
    ]


def test_records_that_are_odd_are_looked_at_as_far_as_they_go() -> None:
    rows = [
        Row(1, None),
        Row(2, b"\xff"),
        Row(3, b"[1]"),
        Row(4, b"null"),
        hot(5, None),
        hot(6, "40"),
        hot(7, True),
        hot(8, 10**18, "ü 车"),
    ]
    trial = tried(of_rows(), rows)
    assert (trial.looks, spans(trial)) == (4, [("ü 车", at(8), None)])
    assert trial.steps[0].model_dump() == {"t": at(0), "least": 1e18, "most": 1e18, "firing": 1}


def test_keys_that_are_no_utf8_are_devices_too_and_a_record_without_one_is_nobody_s() -> None:
    quiet = rule(stream="rows", silent_s=60)
    assert {key for key, _, _ in spans(tried(quiet, [heard(0, b"\xff"), heard(0, None)]))} == {
        "\ufffd",
        "",
    }


@pytest.mark.parametrize("seconds", [0, 0.001, 0.059])
def test_a_time_shorter_than_its_steps_is_a_trial_too(seconds: float) -> None:
    trial = tried(of_rows(), [hot(0)], seconds=seconds)
    assert (len(trial.steps), trial.keys) == (STEPS, 1)


def test_more_episodes_than_are_named_are_counted() -> None:
    rows = [hot(2 * i + odd, 20 if odd else 40) for i in range(60) for odd in (0, 1)]
    trial = tried(of_rows(), rows)
    assert (len(trial.episodes), trial.more, trial.keys) == (EPISODES_MAX, 60 - EPISODES_MAX, 1)
    assert trial.episodes[0].begin == at(118), "the newest are named"


@pytest.mark.parametrize(
    ("more", "said"),
    [({"problems": ()}, "problems"), ({"silent_s": 60}, "give a stream"), ({"stream": "k"}, None)],
)
def test_what_is_not_kept_is_said(more: dict[str, object], said: str | None) -> None:
    found = unknown(rule(**more), begin=0, end=1)
    assert (found and found.is_known, said in found.note if found and said else None) == (
        (None, None) if said is None else (False, True)
    )


def lived(a_rule: Rule, rows: list[Row], *, seconds: int) -> list[Episode]:
    """A plain model: the judge, which lets time pass each second."""
    condition, alert = Condition.of(a_rule), cast("Alert | None", None)
    episodes: list[Episode] = []
    for second in range(seconds + 1):
        now = at(second)
        steps = [None, *(row for row in rows if row.timestamp()[1] == now)]
        for row in steps:
            before = alert
            if row is None:
                alert = before and pass_time(before, now, a_rule)
            else:
                reading = json.loads(row.value() or b"")
                alert = look(before, condition.seen(reading, now), a_rule)
            was = before is not None and before.state is State.FIRING
            fires = alert is not None and alert.state is State.FIRING
            if fires and not was:
                assert alert is not None
                episodes.append(
                    Episode(key="car-1", begin=alert.since, end=None, value=alert.value)
                )
            if was and not fires:
                assert alert is not None
                episodes[-1] = episodes[-1].model_copy(update={"end": alert.since})
    return episodes


@given(
    times=st.lists(st.integers(0, 240), unique=True, max_size=8).map(sorted),
    temperatures=st.lists(st.sampled_from([20, 40, None]), min_size=8, max_size=8),
    waits=st.fixed_dictionaries(
        {name: st.sampled_from([0, 1, 7, 30]) for name in ("for_s", "over_for_s", "stale_s")}
    ),
    seconds=st.sampled_from([240, 600]),
)
def test_a_trial_finds_the_episodes_of_the_judge(
    times: list[int],
    temperatures: list[int | None],
    waits: dict[str, int],
    seconds: int,
) -> None:
    a_rule = of_rows(**waits)
    rows = [hot(time, value) for time, value in zip(times, temperatures, strict=False)]
    trial = tried(a_rule, rows, seconds=seconds)
    assert trial.episodes[::-1] == lived(a_rule, rows, seconds=seconds)
    assert all(one.t < other.t for one, other in pairwise(trial.steps))
