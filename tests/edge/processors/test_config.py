"""What is wrong with a chain is said when it is read."""

from __future__ import annotations

import re

import pytest

from edgewake.edge.config import AgentConfig
from edgewake.protocol.names import is_field
from tests.edge.processors.helpers import chain, made


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (
            {"type": "filter", "where": "x >"},
            "character 4: expected a field, a constant or a function, found the end",
        ),
        ({"type": "derive", "fields": {"device": "x"}}, "no name of the envelope"),
        ({"type": "select", "keep": ["x"], "drop": ["y"]}, "expected either keep or drop"),
        ({"type": "select", "rename": {"x": "z", "y": "z"}}, "two fields get one name"),
        (
            {"type": "units", "fields": {"x": {"unit": "m", "to": "s"}}},
            "m is a length, s is a time",
        ),
        ({"type": "window", "fields": ["x"]}, "expected either size_s or size_count"),
        (
            {"type": "window", "fields": ["x"], "size_s": 1, "size_count": 1},
            "expected either size_s or size_count",
        ),
        (
            {"type": "window", "fields": ["x"], "size_s": 10, "every_s": 3},
            "expected every_s, or up to 100 times that",
        ),
        (
            {"type": "window", "fields": ["x"], "size_s": 3600, "every_s": 1},
            "expected every_s, or up to 100 times that",
        ),
        (
            {"type": "window", "fields": ["x"], "size_count": 4, "every_count": 8},
            "expected every_count, or up to 100 times that",
        ),
        (
            {"type": "window", "fields": ["x"], "size_count": 4, "every_s": 1},
            "every_s and grace_s belong to size_s",
        ),
        (
            {"type": "window", "fields": ["x"], "size_s": 4, "every_count": 1},
            "every_count belongs to size_count",
        ),
        (
            {"type": "window", "fields": ["x"], "size_s": 1, "grace_s": 101},
            "grace_s: expected at most 100 times the step",
        ),
        (
            {"type": "pattern", "name": "p", "sequence": ["x = 1"], "within_s": 1},
            "at least 2 items",
        ),
        ({"type": "rule", "name": "r", "when": "x = 1", "unknown": 1}, "Unexpected keyword"),
        ({"type": "spline"}, "expected tags"),
        ({"type": "rate", "field": "f" * 60}, "expected at most 64 characters"),
        ({"type": "window", "fields": ["x", "y", "x"], "size_s": 1}, "expected each field once"),
        ({"type": "downsample", "fields": ["x", "x"], "every_s": 1}, "expected each field once"),
        ({"type": "smooth", "fields": ["x", "x"]}, "expected each field once"),
        (
            {"type": "downsample", "fields": ["k", "x"], "every_s": 1, "by": "k"},
            "'k' is the field of `by`",
        ),
        (
            {
                "type": "window",
                "fields": ["x", "f" * 60],
                "size_s": 1,
                "aggregates": ["sum", "count"],
            },
            "expected at most 64 characters",
        ),
    ],
)
def test_errors_say_what_was_expected(processor: dict[str, object], said: str):
    with pytest.raises(ValueError, match=re.escape(said)):
        chain(processor)


@pytest.mark.parametrize(
    "processor",
    [
        {"type": "rate", "field": "f" * 59},
        {"type": "rate", "field": "f" * 64, "name": "rate"},
        {"type": "window", "fields": ["f" * 60], "size_s": 1, "aggregates": ["sum"]},
        {"type": "downsample", "fields": ["f" * 64], "every_s": 1},
    ],
)
def test_what_it_makes_has_names_that_the_bridge_takes(processor: dict[str, object]):
    field = str(processor.get("field") or processor["fields"][0])  # type: ignore[index]
    found = made(chain(processor), [(t, {field: float(t)}) for t in (1, 2_001, 4_001)])
    assert found
    assert all(is_field(name) for _, fields in found for name in fields)


def agent(**keys: object) -> AgentConfig:
    sources = [
        {"type": "json_lines", "stream": "speed"},
        {"type": "host_metrics", "stream": "loose", "mode": "one_way"},
    ]
    return AgentConfig.checked({"device": "d", "data_dir": "d", "source": sources} | keys)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"source": [{"type": "json_lines", "stream": "a", "mode": "one_way", "send": False}]},
            "goes nowhere",
        ),
        (
            {
                "source": [
                    {"type": "json_lines", "stream": "a", "send": False},
                    {"type": "host_metrics", "stream": "a"},
                ]
            },
            "both sent and not",
        ),
        (
            {
                "source": [{"type": "json_lines", "stream": "a", "send": False}],
                "log": {"mode": "sbml"},
            },
            "logs what is sent when it is sent",
        ),
    ],
)
def test_a_stream_that_is_not_sent_is_logged_and_is_one_for_all(keys: dict[str, object], said: str):
    with pytest.raises(ValueError, match=re.escape(said)):
        agent(**keys)


def link(stream: str, into: str) -> dict[str, object]:
    return {"stream": stream, "into": into, "processor": [{"type": "filter", "where": "x > 0"}]}


@pytest.mark.parametrize(
    ("chains", "said"),
    [
        ([link("speed", "speed")], "the stream 'speed' is made by another source or chain too"),
        ([link("speed", "loose")], "the stream 'loose' is made by another source or chain too"),
        (
            [link("speed", "a"), link("speed", "a")],
            "the stream 'a' is made by another source or chain too",
        ),
        ([link("loose", "a")], "it cannot read 'loose': its source is one_way, which logs nothing"),
        (
            [link("b", "a"), link("a", "b")],
            "it cannot read 'b': no source or earlier chain makes it",
        ),
    ],
)
def test_a_chain_has_one_input_that_is_logged_and_an_output_of_its_own(
    chains: list[dict[str, object]], said: str
):
    with pytest.raises(ValueError, match=re.escape(said)):
        agent(chain=chains)


def test_a_chain_may_read_what_an_earlier_one_makes():
    assert [chain.into for chain in agent(chain=[link("speed", "a"), link("a", "b")]).chain] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("processors", "behind_s"),
    [
        (
            [
                {"type": "filter", "where": "x > 0"},
                {"type": "rule", "name": "r", "when": "x > 1", "for_s": 600},
            ],
            0,
        ),
        ([{"type": "window", "fields": ["x"], "size_s": 60, "every_s": 10, "grace_s": 5}], 65),
        ([{"type": "window", "fields": ["x"], "size_count": 60}], 0),
        (
            [
                {"type": "downsample", "fields": ["x"], "every_s": 30, "grace_s": 2},
                {"type": "lttb", "field": "x", "every_s": 100},
            ],
            232,
        ),
    ],
)
def test_how_far_behind_what_a_chain_makes_may_be_is_known_and_adds_up(
    processors: list[dict[str, object]], behind_s: float
):
    first = {"stream": "speed", "into": "a", "processor": processors}
    second = {
        "stream": "a",
        "into": "b",
        "processor": [{"type": "window", "fields": ["x"], "size_s": 7}],
    }
    assert agent(chain=[first, second]).behind_s == {"a": behind_s, "b": behind_s + 7}
