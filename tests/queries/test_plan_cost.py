"""What Spark must plan is counted before it is asked to, with every copy, and bounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from edgewake.cloud.queries.plan_cost import PLAN_MAX, STREAM_PLAN_MAX, check_plan, plan_cost
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.registry import Registry, built_in, statuses
from edgewake.cloud.queries.terms.expressions import SIZE_MAX
from edgewake.cloud.queries.terms.tree import Call, Field, Literal, size_of
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.query import QueryState, Registration

HEADER = "-- name: q\n"
HAVERSINE = (
    "12742 * asin(sqrt(pow(sin(radians(lat - 53.3) / 2), 2) + cos(radians(lat)) * "
    "cos(radians(53.3))"
    " * pow(sin(radians(lon + 6.2) / 2), 2)))"
)


def nested(wrap: Callable[[str, int], str], depth: int, text: str = "x") -> str:
    for i in range(depth):
        text = wrap(text, i)
    return text


GROWING: Mapping[str, Callable[[str, int], str]] = {
    "nullif": lambda x, i: f"nullif({x}, {i})",
    "text of a number": lambda x, i: f"cast(cast({x} AS string) AS double)",
    "CASE of a value": lambda x, i: (
        f"CASE {x} WHEN 1 THEN 2 WHEN 2 THEN 3 WHEN 3 THEN {i} ELSE 5 END"
    ),
    "BETWEEN": lambda x, i: f"if({x} BETWEEN 1 AND {i}, 1, 2)",
    "RLIKE": lambda x, i: f"if(cast({x} AS string) RLIKE 'a', 1, 2)",
    "boolean as a number": lambda x, i: f"cast({x} > 1 AS double)",
}


@pytest.mark.parametrize("shape", GROWING)
def test_what_grows_faster_than_its_text_is_refused_before_it_is_large(shape: str) -> None:
    begun_s = time.process_time()
    with pytest.raises(QueryError, match=f"expected at most {SIZE_MAX}; nest less in it"):
        parse(HEADER + f"SELECT {nested(GROWING[shape], 14)} AS y FROM m")
    assert time.process_time() - begun_s < 5, "nobody walks the tree that it would be"


@pytest.mark.parametrize(
    "wrap", ["({x} + {i})", "sqrt({x})", "({x} div 2)", "round({x}, 1)", "cos({x})"]
)
def test_what_grows_with_its_text_is_read_as_deep_as_may_be(wrap: str) -> None:
    """A sum of a dozen terms was a plan of a million parts, and took the whole analysis down."""
    query = parse(HEADER + f"SELECT {nested(lambda x, i: wrap.format(x=x, i=i), 14)} AS y FROM m")
    assert plan_cost(query) < 100


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {HAVERSINE} AS km FROM m WHERE {HAVERSINE} < 5",
        *(text for text in built_in().values()),
    ],
)
def test_what_people_ask_is_far_below_the_bound(sql: str) -> None:
    assert plan_cost(parse(sql if sql.startswith("--") else HEADER + sql)) < PLAN_MAX / 40


def test_copies_are_counted_where_a_part_stands_in_many_places() -> None:
    doubled = Field("x")
    for _ in range(200):  # each holds the one before it twice: 2^200 parts, which nobody may visit
        doubled = Call("+", (doubled, doubled))  # type: ignore[assignment]
    assert size_of(doubled) == 2**201 - 1
    assert size_of(Call("rlike", (Call("lower", (Field("s"),)), Literal("a")))) == 1 + 2 * 2 + 1


def test_many_rows_of_a_reading_times_many_aggregates_are_refused_with_what_to_do() -> None:
    columns = ", ".join(f"avg(x{i}) AS a{i}" for i in range(60))
    with pytest.raises(
        QueryError,
        match=r"becomes 3600 rows \(120 windows x 1 fields x 30 parts of 2 aggregates\); use a "
        r"longer",
    ):
        parse(
            HEADER + f"SELECT {columns} FROM m GROUP BY window(event_time, '2 minutes', '1 second')"
        )
    with pytest.raises(QueryError, match="register several queries"):
        parse(
            HEADER
            + "SELECT "
            + ", ".join(f"{nested(GROWING['nullif'], 8, f'x{i}')} AS a{i}" for i in range(40))
            + " FROM m"
        )


def test_the_youngest_queries_of_a_stream_are_refused_when_all_together_are_too_much() -> None:
    """One that fits is let in beside one that does not."""
    tables = Registry()
    stream = Stream(name="m", fields={f"x{i}": FieldInfo(type=FieldType.NUMBER) for i in range(40)})
    tables.on_stream("m", stream.model_dump_json().encode())
    large = (
        "SELECT "
        + ", ".join(
            f"avg({'+'.join(f'x{(i + j) % 40}' for j in range(8))}) AS a{i}" for i in range(60)
        )
        + " FROM m"
    )
    each = plan_cost(parse(f"{HEADER}{large}"))
    count = STREAM_PLAN_MAX // each + 2
    texts = {f"q{i}": f"-- name: q{i}\n{large}" for i in range(count)} | {
        "small": "-- name: small\nSELECT x1 FROM m"
    }
    for at, (name, text) in enumerate(texts.items()):
        tables.on_query(
            name,
            Registration(name=name, text=text, registered_at=at, claim=f"{at}")
            .model_dump_json()
            .encode(),
        )
    found = statuses(tables, {})
    refused = [name for name, one in found.items() if one.state is QueryState.REFUSED]
    assert refused == [f"q{i}" for i in range(count - 2, count)]
    assert "remove or shorten queries" in found[refused[0]].detail
    assert found["small"].state is QueryState.RUNNING
    check_plan(parse(f"{HEADER}{large}"))
