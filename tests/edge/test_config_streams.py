"""Streams of one configuration: who makes them, who reads them, in which lane they go; what does
not fit together is refused.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.config import ACTIONS_MAX, CHAINS_MAX, SKETCHES_MAX, AgentConfig
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota, LaneQuota
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError

PORTS = iter(range(20_000, 60_000))


def source(stream: str, **keys: Any) -> dict[str, Any]:
    return {"type": "http_intake", "stream": stream, "port": next(PORTS)} | keys


def chain(stream: str, into: str, **keys: Any) -> dict[str, Any]:
    return {
        "stream": stream,
        "into": into,
        "processor": [{"type": "filter", "where": "x > 1"}],
    } | keys


def absence(**keys: Any) -> dict[str, Any]:
    return {"name": "quiet", "stream": "a", "into": "alerts", "after_s": 1} | keys


def action(**keys: Any) -> dict[str, Any]:
    return {"name": "siren", "stream": "a", "type": "command", "command": ["/bin/true"]} | keys


def sketch(**keys: Any) -> dict[str, Any]:
    return {"stream": "a", "fields": ["x"], "beside": True} | keys


def configured(*sources: dict[str, Any], **tables: Any) -> AgentConfig:
    return parse(
        AgentConfig,
        {"device": "d", "data_dir": "/x", "source": list(sources)} | tables,
        "agent.toml",
    )


@pytest.mark.parametrize(
    ("sources", "tables", "says"),
    [
        pytest.param(
            [source("ew_x")],
            {},
            "'ew_x' is written by the system",
            id="a source of a system's stream",
        ),
        pytest.param(
            [source("down_answers")],
            {},
            "'down_answers' is written by the system",
            id="a source of answers",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", "ew_x")]},
            "'ew_x' is written by the system",
            id="a chain into a system's stream",
        ),
        pytest.param(
            [source("a")],
            {"absence": [absence(into="down_answers")]},
            "written by the system",
            id="alerts into one",
        ),
        pytest.param(
            [source("device_requests")],
            {},
            "expected `downlink.requests = true`",
            id="requests that are not allowed",
        ),
        pytest.param(
            [source("device_requests", send=False)],
            {"downlink": {"requests": True}},
            "and that it is sent",
            id="requests that stay here",
        ),
        pytest.param(
            [source("a"), source("a", lane="bulk")],
            {},
            "one stream has two lanes",
            id="one stream in two lanes",
        ),
        pytest.param(
            [source("a"), source("a", send=False)],
            {},
            "both sent and not sent",
            id="one stream sent and not",
        ),
        pytest.param(
            [source("a"), source("a", queue_bytes_max=1 << 20)],
            {},
            "two values of queue_bytes_max",
            id="two bounds of a queue",
        ),
        pytest.param(
            [source("a", port=5), source("b", port=5)], {}, "two of them read", id="two on one port"
        ),
        pytest.param(
            [source("a", mode="one_way", send=False)],
            {},
            "goes nowhere",
            id="one that goes nowhere",
        ),
        pytest.param(
            [source("a", send=False)],
            {"log": {"mode": "sbml"}},
            "logs what is sent when it is sent",
            id="kept here and logged never",
        ),
        pytest.param(
            [],
            {"chain": [chain("a", "b")]},
            "no source or earlier chain makes it",
            id="a chain that reads nothing",
        ),
        pytest.param(
            [source("a", streams="all", presets=["influx"])],
            {"chain": [chain("cpu", "b")]},
            "give this one a source of its own",
            id="a chain of what a map may name",
        ),
        pytest.param(
            [source("a", streams="all", presets=["influx"])],
            {"absence": [absence(stream="cpu")]},
            "give this one a source of its own",
            id="silence of what a map may name",
        ),
        pytest.param(
            [source("a", mode="one_way")],
            {"chain": [chain("a", "b")]},
            "one_way, which logs nothing",
            id="a chain of one_way",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", "a")]},
            "made by another source or chain too",
            id="a chain into itself",
        ),
        pytest.param(
            [source("a"), source("b")],
            {"chain": [chain("a", "b")]},
            "made by another source or chain too",
            id="a chain into a source",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", "b"), chain("a", "b")]},
            "made by another source or chain too",
            id="two chains into one",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("c", "b"), chain("a", "c")]},
            "cannot read 'c'",
            id="a chain before what it reads",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("b", "c"), chain("c", "b")]},
            "cannot read 'b'",
            id="a circle",
        ),
        pytest.param(
            [source("a")],
            {"absence": [absence(stream="b")]},
            "not a stream of a logged source or a chain",
            id="silence of nobody",
        ),
        pytest.param(
            [source("a")],
            {"absence": [absence(into="a")]},
            "already made by another source or chain",
            id="alerts into a source",
        ),
        pytest.param(
            [source("a")],
            {"absence": [absence(), absence(name="b", lane="bulk")]},
            "in another way",
            id="alerts in two lanes",
        ),
        pytest.param(
            [source("a")],
            {"absence": [absence(), absence(into="b")]},
            "absence: two of the same name",
            id="two rules of one name",
        ),
        pytest.param(
            [source("a")],
            {"action": [action(stream="b")]},
            "not a stream of a logged source, a chain or",
            id="an action on nothing",
        ),
        pytest.param(
            [source("a")],
            {"action": [action(), action()]},
            "action: two of the same name",
            id="two actions of one name",
        ),
        pytest.param(
            [source("a", mode="one_way")],
            {"action": [action()]},
            "not a stream of a logged",
            id="an action on one_way",
        ),
        pytest.param(
            [source("a")],
            {"sketch": [sketch(stream="b")]},
            "not a stream of a logged source",
            id="a sketch of nothing",
        ),
        pytest.param(
            [source("a")],
            {"sketch": [sketch(beside=False)]},
            "would count twice",
            id="a sketch that counts twice",
        ),
        pytest.param(
            [source("a", send=False)],
            {"sketch": [sketch()]},
            "is sent, as `beside` says",
            id="beside what is not sent",
        ),
        pytest.param(
            [source("a")],
            {"sketch": [sketch(), sketch()]},
            "two have one stream",
            id="two sketches of one stream",
        ),
        pytest.param(
            [source("a"), source("b")],
            {"sketch": [sketch(), sketch(stream="b", lane="bulk")]},
            "not the same lane",
            id="in two lanes",
        ),
        pytest.param(
            [source("device_sketches")], {}, "is the stream of sketches", id="a source of sketches"
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", f"b{n}") for n in range(CHAINS_MAX + 1)]},
            "at most 100 items",
            id="many chains",
        ),
        pytest.param(
            [source("a")],
            {"action": [action(name=f"b{n}") for n in range(ACTIONS_MAX + 1)]},
            "at most 100 items",
            id="many actions",
        ),
        pytest.param(
            [source("a")],
            {"sketch": [sketch()] * (SKETCHES_MAX + 1)},
            "at most 4 items",
            id="many sketches",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(
    sources: list[dict[str, Any]], tables: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(*sources, **tables)
    assert says in str(caught.value)
    assert str(caught.value).startswith("agent.toml: ")


@pytest.mark.parametrize(
    ("sources", "tables"),
    [
        pytest.param([], {}, id="nothing at all"),
        pytest.param([source("a"), source("a")], {}, id="two sources of one stream"),
        pytest.param([source("a", mode="one_way"), source("a")], {}, id="one_way and logged"),
        pytest.param(
            [source("device_requests")], {"downlink": {"requests": True}}, id="a device that asks"
        ),
        pytest.param(
            [],
            {"downlink": {"requests": True}, "chain": [chain("ew_replies", "told")]},
            id="a chain of replies",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", "b"), chain("b", "c"), chain("a", "d")]},
            id="chains of chains",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", "b")], "absence": [absence(stream="b")]},
            id="silence of a chain",
        ),
        pytest.param(
            [source("a")],
            {"absence": [absence(), absence(name="b")], "action": [action(stream="alerts")]},
            id="shared alerts",
        ),
        pytest.param(
            [source("a", send=False)],
            {"log": {"mode": "rbml"}, "sketch": [sketch(beside=False)]},
            id="a sketch in place of it",
        ),
        pytest.param(
            [source("a")],
            {"chain": [chain("a", f"b{n}") for n in range(CHAINS_MAX)]},
            id="as many chains as there may be",
        ),
        pytest.param(
            [source("a"), source("b")],
            {"sketch": [sketch(), sketch(stream="b")]},
            id="two sketches",
        ),
        pytest.param(
            [source("a", send=False)],
            {"log": {"mode": "none"}},
            id="kept here by a log that is not durable",
        ),
    ],
)
def test_what_fits_together_is_taken(sources: list[dict[str, Any]], tables: dict[str, Any]) -> None:
    assert configured(*sources, **tables).device == "d"


def test_every_stream_has_its_lane_and_those_that_stay_are_known() -> None:
    found = configured(
        source("a"), source("b", lane="bulk", send=False),
        chain=[chain("a", "c", lane="urgent"), chain("b", "d", send=False)],
        absence=[absence(send=False)], sketch=[sketch(lane="bulk")],
    )  # fmt: skip
    assert found.lanes == {
        "a": Lane.NORMAL, "b": Lane.BULK, "c": Lane.URGENT, "d": Lane.NORMAL, "alerts": Lane.URGENT,
        "device_sketches": Lane.BULK,
    }  # fmt: skip
    assert found.local_streams == {"b", "d", "alerts"}


@pytest.mark.parametrize(("windows", "good"), [(1.99, False), (2, True)])
def test_what_is_on_its_way_fits_twice_into_what_is_kept(windows: float, good: bool) -> None:
    tables = {
        "log": {"quota_bytes": int(windows * (4 << 20))},
        "uplink": {"inflight_bytes_max": 4 << 20},
    }
    if good:
        assert configured(**tables).log.quota_bytes == 8 << 20
    else:
        with pytest.raises(
            ConfigError,
            match=r"log.quota_bytes: expected at least 2 times uplink.inflight_bytes_max",
        ):
            configured(**tables)


@pytest.mark.parametrize(
    ("first", "bound"), [("backoff_min_s", "backoff_max_s"), ("ack_timeout_s", "ack_timeout_max_s")]
)
@pytest.mark.parametrize("value", [0.1, 5.0, 5.1])
def test_a_first_wait_is_no_longer_than_its_bound(first: str, bound: str, value: float) -> None:
    if value <= 5:
        assert getattr(configured(uplink={first: value, bound: 5.0}).uplink, first) == value
    else:
        with pytest.raises(ConfigError, match="a first wait is longer than its bound"):
            configured(uplink={first: value, bound: 5.0})


def test_each_lane_has_the_times_and_bounds_that_are_written_for_it() -> None:
    log = configured(
        log={
            "linger_ms": 100,
            "linger_urgent_ms": 5,
            "linger_bulk_ms": 900,
            "bulk": {"age_s": 7, "at_quota": "thin_out"},
        }
    ).log
    assert log.linger_s() == {Lane.URGENT: 0.005, Lane.NORMAL: 0.1, Lane.BULK: 0.9}
    assert log.lane_quotas() == {
        Lane.URGENT: LaneQuota(None, None, AtQuota.DROP_OLDEST),
        Lane.NORMAL: LaneQuota(None, None, AtQuota.DROP_OLDEST),
        Lane.BULK: LaneQuota(None, 7, AtQuota.THIN_OUT),
    }


def test_an_urgent_reading_waits_least_and_a_bulk_one_longest() -> None:
    times = LogConfig().linger_s()
    assert times[Lane.URGENT] < times[Lane.NORMAL] < times[Lane.BULK]
    assert UplinkConfig().ack_timeout_s < UplinkConfig().ack_timeout_max_s


NAMES = st.sampled_from("abcde")


@given(st.lists(NAMES, max_size=3), st.lists(st.tuples(NAMES, NAMES), max_size=5))
def test_chains_that_are_taken_go_round_in_no_circle_and_each_stream_has_one_maker(
    sources: list[str], chains: list[tuple[str, str]]
) -> None:
    try:
        found = configured(*map(source, sources), chain=[chain(*one) for one in chains])
    except ConfigError:
        made = [into for _, into in chains]
        earlier = [set(sources) | set(made[:n]) for n in range(len(chains))]
        assert len({*made, *sources}) < len(made) + len(set(sources)) or any(
            of not in there for (of, _), there in zip(chains, earlier, strict=True)
        )
        return
    there = {one.stream for one in found.source}
    for one in found.chain:
        assert one.stream in there
        assert one.into not in there
        there.add(one.into)
