"""Filters, plans and events of any kind, for tests of properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, GAP, WATERMARK, Event
from edgewake.cloud.log.subscription import Plan, Source, plan
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.ops.publication import Publication

DEVICES = ("a", "b", "c", "bus-1")

PARTITIONS = 2

NAMES = ("one", "two")

literals = st.sampled_from(["'a'", "'b'", "'c'", "''", "1", "1.0", "2", "TRUE", "NULL"])

fields = st.sampled_from(["device", "line", "stream"])

atoms = (
    st.tuples(fields, literals).map(lambda t: f"{t[0]} = {t[1]}")
    | st.tuples(literals, fields).map(lambda t: f"{t[0]} = {t[1]}")
    | st.tuples(fields, st.lists(literals, min_size=1, max_size=3)).map(
        lambda t: f"{t[0]} IN ({', '.join(t[1])})"
    )
    | st.sampled_from(["line IS TRUE", "line", "n > 1", "line IS NULL"])
    | st.sampled_from(
        [
            "device LIKE 'b%'",
            "device LIKE 'bus-_'",
            "device LIKE '%1'",
            "device LIKE 'bu!s-%' ESCAPE '!'",
            "line LIKE 'a'",
            "line LIKE ''",
            "stream LIKE 'on%'",
            "device NOT LIKE 'b%'",
            "device ILIKE 'B%'",
            "starts_with(device, 'bus')",
            "starts_with(line, '')",
        ]
    )
    | st.sampled_from(["device IN SET('some')", "line IN SET('others')", "line IN SET('none')"])
    | st.sampled_from(
        [
            "in_box(lat, lon, 0, 0, 2, 2)",
            "in_box(lat, lon, -1, 179, 1, -179)",
            "in_polygon(lat, lon, 'POLYGON((0 0, 3 0, 0 3))')",
            "distance_m(lat, lon, 0, 180) < 200000",
            "50000 > distance_m(lat, lon, 1, 1)",
        ]
    )
)

conditions = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' AND '.join(parts)})")
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})")
        | inner.map(lambda part: f"NOT ({part})")
    ),
    max_leaves=4,
)

narrow = st.sampled_from(DEVICES).map(lambda device: f"device = '{device}'")

names = st.lists(st.sampled_from([*DEVICES, "bus-*", "b*1", "*"]), max_size=3).map(Names.of)

parts = st.builds(
    Part, st.none() | names, st.none() | st.lists(st.sampled_from(["line", "n"])).map(Names.of)
)

scopes = st.none() | st.lists(parts, max_size=2).map(lambda found: Scope(tuple(found)))

values: st.SearchStrategy[Any] = st.sampled_from(
    ["a", "b", "c", "", 1, 1.0, 2, True, False, None, [], {"a": 1}, 2**60, 0.5]
)

readings = st.fixed_dictionaries(
    {"device": st.sampled_from(DEVICES), "stream": st.sampled_from(NAMES)},
    optional={
        "line": values,
        "n": st.integers(0, 3),
        "lat": st.sampled_from([0, 1, 1.0, 2.5, -0.5, None, "x", True]),
        "lon": st.sampled_from([0, 1.2, 2, 179.5, -179.5, 180]),
    },
)

events = (
    st.tuples(st.just(DATA), readings)
    | st.tuples(st.just(GAP), st.sampled_from([{"device": d} for d in DEVICES] + [{}]))
    | st.tuples(st.just(WATERMARK), st.just({"query": "one", "t": 5}))
)


def event_of(kind: str, content: dict[str, Any], number: int = 0) -> Event:
    told = {**content, "seq": number}
    return Event(kind, told, orjson.dumps(told))


def source_of(name: str) -> Source:
    return Source(name, name, is_query=False, topic_id="id", partitions=PARTITIONS)


class Sets:
    """Named sets that do not change."""

    def members(self, name: str) -> frozenset[str] | None:
        return {"some": frozenset("ab"), "others": frozenset(["", "c"])}.get(name)


SETS = Sets()

PUBLICATIONS = tuple(
    Publication(
        name="p", streams=NAMES, where=where, fields=fields, version=1, changed_at=0, changed_by="x"
    )
    for where, fields in (
        (None, ("n",)),
        ("line = 'a'", None),
        ("device IN SET('some')", ("line", "lat", "lon")),
        ("in_box(lat, lon, 0, 0, 2, 2)", ("n",)),
    )
)

chosen_of = st.fixed_dictionaries(
    {},
    optional={
        "devices": st.frozensets(st.sampled_from(DEVICES), min_size=1),
        "publication": st.sampled_from(PUBLICATIONS),
        "sample": st.sampled_from([0.3, 0.7]),
    },
)


def a_plan(
    where: str | None,
    scope: Scope | None,
    streams: Sequence[str] = NAMES[:1],
    more: Mapping[str, Any] | None = None,
) -> Plan:
    return plan(
        Wanted(streams=tuple(streams), where=where, **(more or {})),
        [source_of(name) for name in streams],
        [scope for _ in streams],
        sets=SETS,
    )


plans = st.builds(
    a_plan,
    st.one_of(st.none(), conditions, narrow, narrow),
    st.none() | scopes,
    st.sampled_from([NAMES[:1], NAMES[1:], NAMES]),
    st.just({}) | chosen_of,
)
