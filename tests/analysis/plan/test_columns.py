"""The functions of queries: Spark and Python give the same for the same values, nulls and borders
included.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import columns
from edgewake.cloud.queries.terms import evaluate
from edgewake.cloud.queries.terms.functions import (
    BOOLEAN,
    FUNCTIONS,
    NUMBER,
    PATTERN_CHARS_MAX,
    SAME,
    STRING,
    TEXT_CHARS_MAX,
    TIME,
    check_regex,
)
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal
from edgewake.protocol.errors import QueryError

NUMBERS = [
    *(None, 0.0, 1.0, -1.0, 2.5, -2.5, 0.125, 7.0, 1e-5, 123456.789, -3.0, 1e15, 0.15),
    123456789012345.67,
]
TEXTS = [
    None,
    "",
    "Main Street",
    "main",
    " a b ",
    "a-b-c",
    "Größe",
    "12.5",
    " 7 ",
    "1e3",
    "x%y",
    "0x1F",
    "true",
    "car-07",
    "1d",
    "0x1p3",
    "٣",
    "\u00a07",
]
TIMES = [
    None,
    0,
    1_790_000_040_123,
    1_774_746_000_000,
    1_774_749_599_999,
    1_792_976_400_000,
    951_782_400_000,
    -1,
    1_767_225_599_999,
]
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
TYPES = {NUMBER: "double", STRING: "string", TIME: "bigint", BOOLEAN: "boolean"}
VALUES: dict[Any, list[Any]] = {
    NUMBER: NUMBERS,
    STRING: TEXTS,
    TIME: TIMES,
    BOOLEAN: [None, True, False],
}
CONSTANTS: dict[str, list[tuple[Any, ...]]] = {
    "round": [(0,), (1,), (3,), (15,)],
    "like": [
        (p,)
        for p in (
            "%ain%",
            "_ain",
            "a-%",
            "x\\%y",
            "",
            "%a%n%",
            "M%i_%t%t",
            "%-_-%-%",
            "%%a%%e%%",
            "x%\\%%y",
            "%0_1%",
        )
    ],
    "ilike": [(p,) for p in ("MAIN%", "gr_SSE", "%", "%A%IN%", "g%Ö_%e")],
    "rlike": [("^[A-Z]",), ("a.b",), ("[0-9]{2}",), ("^M|c$",)],
    "left": [(0.0,), (3.0,), (-1.0,), (99.0,)],
    "right": [(0.0,), (3.0,), (-1.0,), (99.0,)],
    "substring": [(1.0, 3.0), (2.0, 1e6), (-3.0, 2.0), (0.0, 2.0), (99.0, 1.0), (2.0, -1.0)],
    "split_part": [
        ("-", 0.0),
        ("-", 0.5),
        ("-", 1.5),
        ("-", 1.0),
        ("-", 3.0),
        ("-", 4.0),
        ("-", -1.0),
        ("", 1.0),
        ("-", -5.0),
    ],
    "replace": [("a", "bb"), ("", "x"), ("Main", "")],
    "instr": [("a",), ("",), ("zz",)],
    "log": [],
    "date_format": [("%Y-%m-%d %H:%M:%S", zone) for zone in ZONES] + [("%Y-%mT%H_%d", "UTC")],
    "date_trunc": [
        (unit, zone)
        for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
        for zone in ZONES
    ],
}


def cases() -> list[tuple[str, list[Expression], list[Any]]]:
    """(function, arguments, types of the columns a, b, c)."""
    found: list[tuple[str, list[Expression], list[Any]]] = []
    for name, signature in FUNCTIONS.items():
        takes = signature.takes
        if name in ("case", "in", "between"):
            continue
        if CONSTANTS.get(name):
            found += [
                (name, [Field("a"), *map(Literal, constants)], [takes[0]])
                for constants in CONSTANTS[name]
            ]
        elif takes[0] is TIME and len(takes) == 2:
            found += [(name, [Field("a"), Literal(zone)], [TIME]) for zone in ZONES]
        else:
            arguments = [
                Field(letter)
                for letter, _ in zip("abc", takes * 2 if signature.repeats else takes, strict=False)
            ]
            kinds = (takes * 2 if signature.repeats else takes) if SAME not in takes else ()
            found += (
                [(name, list(arguments), [*kinds])]
                if kinds
                else [(name, list(arguments), [kind] * len(arguments)) for kind in VALUES]
            )
    a, b = Field("a"), Field("b")
    found.append(
        ("case", [Call("<", (a, b)), a, Call("is_null", (a,)), b, Literal(None)], [NUMBER, NUMBER])
    )
    found.append(("in", [a, b, Literal(1.0), Literal(None)], [NUMBER, NUMBER]))
    found.append(("in", [a, Literal(1.0), Literal(7.0)], [NUMBER]))
    found.append(("between", [a, Literal(-1.0), b], [NUMBER, NUMBER]))
    return found


def same(spark: Any, python: Any) -> bool:
    if (
        isinstance(spark, float)
        and isinstance(python, int | float)
        and not isinstance(python, bool)
    ):
        return math.isclose(spark, python, rel_tol=1e-12, abs_tol=1e-12)
    return bool(spark == python)


def test_both_know_all_functions() -> None:
    assert set(FUNCTIONS) == evaluate.STRICT.keys() | evaluate.LAZY.keys()
    assert set(FUNCTIONS) == columns.NAMES


def test_spark_and_python_agree_on_every_function(spark: SparkSession) -> None:
    wrong = []
    for kinds, members in by_types().items():
        rows = product([VALUES[kind] for kind in kinds])
        schema = ", ".join(
            f"{letter} {TYPES[kind]}" for letter, kind in zip("abc", kinds, strict=False)
        )
        frame = spark.createDataFrame(rows, schema)
        made = frame.select(
            *[
                columns.column(Call(name, tuple(arguments)), F.col).alias(f"c{i}")
                for i, (name, arguments) in enumerate(members)
            ]
        )
        answers = made.collect()
        for i, (name, arguments) in enumerate(members):
            compute = evaluate.evaluated(Call(name, tuple(arguments)), {"a": 0, "b": 1, "c": 2})
            constants = [one.value for one in arguments if isinstance(one, Literal)]
            wrong += [
                f"{name}{row} {constants}: Spark {answer[i]!r}, Python {compute(row)!r}"
                for row, answer in zip(rows, answers, strict=True)
                if not same(answer[i], compute(row))
            ]
    assert wrong == [], "\n".join(wrong[:40])


def by_types() -> dict[tuple[Any, ...], list[tuple[str, list[Expression]]]]:
    found: dict[tuple[Any, ...], list[tuple[str, list[Expression]]]] = {}
    for name, arguments, kinds in cases():
        found.setdefault(tuple(kinds), []).append((name, arguments))
    return found


def product(values: list[list[Any]]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = [()]
    for column in values:
        rows = [(*row, value) for row in rows for value in column]
    return rows[:: max(1, len(rows) // 400)]


LONG = "a" * TEXT_CHARS_MAX
DEAR = [
    "%a%a%a%b",
    "a%a%a%a%ab",
    "%a%a%a%b%",
    "%a_a%a_a%b_%",
    "%%%%b",
    "%%%%%%b%%%%%%",
    "%" + "a" * (PATTERN_CHARS_MAX - 4) + "_b%",
]


def test_no_pattern_of_like_makes_a_long_text_dear(spark: SparkSession) -> None:
    """A plain regular expression takes years of some of these, so what fails here is the test's
    time limit.
    """
    calls = [
        Call(name, (Field("a"), Literal(pattern)))
        for name in ("like", "ilike")
        for pattern in [*DEAR, "%a%a%a%", "%A%_%a"]
    ]
    (answer,) = (
        spark.createDataFrame([(LONG,)], "a string")
        .select(*[columns.column(call, F.col) for call in calls])
        .collect()
    )
    assert [evaluate.evaluated(call, {"a": 0})((LONG,)) for call in calls] == list(answer)
    assert list(answer) == [*[False] * len(DEAR), True, False, *[False] * len(DEAR), True, True]


@pytest.mark.parametrize("end", ["x", ".x", "e"])
def test_a_long_text_that_is_no_number_costs_its_length(end: str) -> None:
    """Of a text a hundred times shorter one took five seconds, for it was tried wherever its digits
    could be parted in two.
    """
    assert evaluate.text_number("1" * (100 * TEXT_CHARS_MAX) + end) is None


@given(st.text("ab%_\n", max_size=8), st.text("aAb%\n", max_size=12))
def test_like_is_what_a_step_for_each_character_finds(pattern: str, text: str) -> None:
    assert evaluate.evaluated(Call("like", (Field("a"), Literal(pattern))), {"a": 0})(
        (text,)
    ) == is_like(text, pattern)


def is_like(text: str, pattern: str) -> bool:
    """All places of the pattern that the text may stand at, character by character."""
    at = {0}
    for character in [*text, ""]:
        at |= {
            end
            for begin in at
            for end in range(begin, len(pattern) + 1)
            if set(pattern[begin:end]) <= {"%"}
        }
        if character:
            at = {i for i in at if pattern[i : i + 1] == "%"} | {
                i + 1 for i in at if pattern[i : i + 1] in ("_", character)
            }
    return len(pattern) in at


@pytest.mark.parametrize(
    "pattern", ["^abc", "a.*b", "^[a-z]+-[0-9]+$", "(foo|bar)-[0-9]{2}", r"^\d+\.\d+$", "a?b"]
)
def test_a_plain_regular_expression_is_taken(pattern: str) -> None:
    check_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*",
        "a.*b.*c",
        "^a*b*c*",
        r"(a)\1",
        "(?=a)",
        "(?i)a",
        "a++",
        "a{1,1000}",
        "[a[b]]",
        "(",
        "^a*|b*c*",
    ],
)
def test_a_regular_expression_that_may_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(QueryError, match="regular expression"):
        check_regex(pattern)
