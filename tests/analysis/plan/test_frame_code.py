"""Frames.java against Spark's own expressions: the same answers, or none."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import frame_code
from edgewake.cloud.analysis.plan.frame_sums import HLL_LOG2_BUCKETS
from edgewake.protocol.frames import frame, record
from tests.examples import examples

FIELDS: Final = {"load": "double", "on": "boolean", "speed": "double", "street": "string"}
SCHEMA: Final = (
    "struct<device: string, shift: bigint, kept_at: bigint, sent_at: bigint, received_at: bigint, "
    "t: array<bigint>, fields: struct<"
    + ", ".join(f"{name}: array<{kind}>" for name, kind in FIELDS.items())
    + ">>"
)


def read(session: SparkSession) -> Column:
    letters = "".join(kind[0] for kind in FIELDS.values())
    return frame_code.read(session, F.col("value"), SCHEMA, list(FIELDS), letters)


def both(session: SparkSession, values: Sequence[bytes]) -> list[tuple[Row | None, Row | None]]:
    """Of each record what ours and what Spark's from_json make."""
    records = session.createDataFrame([(value,) for value in values], "value binary")
    made = records.select(
        read(session).alias("ours"),
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("theirs"),
    )
    return [(row["ours"], row["theirs"]) for row in made.collect()]


def shown(row: Any) -> str:
    """Exactly: also which zero it is."""
    return repr(row.asDict(recursive=True)) if row is not None else "None"


def value(
    columns: dict[str, list[Any]],
    t: list[int],
    *,
    sent_at: int | None = 5,
    shift: int = 0,
    device: str = "d1",
) -> bytes:
    body = frame.encode(frame.Frame(1, 2, 3, t, columns))
    made = record.encode(
        device=device,
        stream="s",
        mode=record.Mode.ACK,
        sent_at=sent_at,
        received_at=17,
        frame_bytes=body,
    )
    return record.with_clocks(made, shift=shift, kept_at=18 if shift else None)


ORDINARY: Final = [
    value(
        {"speed": [1.5, -2, 0.1], "street": ["a", "Straße 7 – 夜", ""], "on": [True, False, True]},
        [1, 2, 1_790_000_000_000],
    ),
    value(
        {
            "speed": [1e300, 5e-324, 1.7976931348623157e308],
            "load": [0.30000000000000004, 123456789012345678, 2.5e-7],
        },
        [1, 2, 3],
        sent_at=None,
    ),
    value(
        {
            "speed": [None, 4.0],
            "street": [None, "b"],
            "on": [None, True],
            "other": [[1, {"x": '}\\"'}], None],
        },
        [-1, 0],
        shift=-3_600_000,
    ),
    value({}, [1]),
    b'{"device":"d1","stream":"s","mode":"ack","sent_at":null,"received_at":3,"epoch":1,"frame":7,'
    b'"gap":{"reason":"evicted","count":3}}',
    b' { "device" : "d1" ,\n"t" : [ 1 , 2 ] , "fields" : { "speed" : [ 1 ,\t2.50 ] , "street" : [ '
    b'] , "load" : null } } ',
]


def test_what_a_bridge_writes_is_read_as_spark_reads_it(spark: SparkSession) -> None:
    for ours, theirs in both(spark, ORDINARY):
        assert ours is not None, theirs
        assert shown(ours) == shown(theirs)


UNUSUAL: Final = [
    b"",
    b"{}x",
    b"[1]",
    b'{"device":"d\\u0031","t":[1]}',
    b'{"de\\u0076ice":"d1","t":[1]}',
    b'{"device":"d1","device":"d2","t":[1]}',
    b'{"device":1,"t":[1]}',
    b'{"device":"d1","t":[1.0]}',
    b'{"device":"d1","t":[1e3]}',
    b'{"device":"d1","t":["1"]}',
    b'{"device":"d1","t":1}',
    b'{"device":"d1","t":[1234567890123456789012]}',
    b'{"device":"d1","t":[01]}',
    b'{"device":"d1","t":[1],"fields":[]}',
    b'{"device":"d1","t":[1],"fields":{"speed":["NaN"]}}',
    b'{"device":"d1","t":[1],"fields":{"speed":[-0]}}',
    b'{"device":"d1","t":[1],"fields":{"speed":[[1]]}}',
    b'{"device":"d1","t":[1],"fields":{"speed":[true]}}',
    b'{"device":"d1","t":[1],"fields":{"speed":[1],"speed":[2]}}',
    b'{"device":"d1","t":[1],"fields":{"speed":{"a":1}}}',
    b'{"device":"d1","t":[1],"fields":{"street":[1]}}',
    b'{"device":"d1","t":[1],"fields":{"street":["\\n"]}}',
    b'{"device":"d1","t":[1],"fields":{"street":["a\nb"]}}',
    b'{"device":"d1","t":[1],"fields":{"on":[1]}}',
    b'{"device":"d1","t":[1],"fields":{"on":["true"]}}',
    b'{"device":"d1","t":[1],"more":' + b"[" * 100 + b"]" * 100 + b"}",
]


def test_what_is_unusual_is_left_to_spark(spark: SparkSession) -> None:
    assert [
        (text, ours)
        for text, (ours, _) in zip(UNUSUAL, both(spark, UNUSUAL), strict=True)
        if ours is not None
    ] == []


def test_a_record_that_ends_early_or_has_another_byte_is_read_as_spark_reads_it_or_not_at_all(
    spark: SparkSession,
) -> None:
    """Bytes that are no JSON Spark forgives now and then; ours then says nothing."""
    rng = random.Random(5)
    whole = ORDINARY[0]
    broken = [whole[:i] for i in range(len(whole))]
    for _ in range(3000):
        place = rng.randrange(len(whole))
        broken.append(
            whole[:place] + bytes([rng.choice(b'{}[],:"\\ 019.-+eEtfn\n')]) + whole[place + 1 :]
        )

    answers = both(spark, broken)

    differ = [
        (text, ours, theirs)
        for text, (ours, theirs) in zip(broken, answers, strict=True)
        if ours and shown(ours) != shown(theirs)
    ]
    assert differ == []
    assert sum(ours is not None for ours, _ in answers) > 500, "many are records still"


_numbers = st.one_of(
    st.integers(-(10**25), 10**25),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-1000, 1000, places=3).map(float),
)
_written = st.one_of(
    _numbers.map(json.dumps),
    st.tuples(st.integers(0, 10**20), st.integers(0, 10**20), st.integers(-330, 330)).map(
        lambda parts: "{}.{}e{}".format(*parts)
    ),
    st.tuples(st.integers(0, 99), st.text("0123456789", min_size=1, max_size=25)).map(
        lambda parts: "{}.{}".format(*parts)
    ),
)
_times = st.lists(st.one_of(st.integers(-(2**62), 2**62).map(str), st.just("null")), max_size=5)
_texts = st.one_of(
    st.text(max_size=6), st.sampled_from(["a", "ä", "\U0001f600", '"', "\\", "\n", "\x7f"])
)
_spaces = st.sampled_from(["", " ", "\n\t", "  "])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """JSON that has to do with records."""
    space = draw(_spaces)

    def list_of(items: Sequence[str]) -> str:
        return f"[{space}" + f"{space},{space}".join(items) + "]"

    any_of = {
        "double": st.lists(st.one_of(_written, st.just("null")), max_size=6),
        "boolean": st.lists(st.sampled_from(["true", "false", "null"]), max_size=6),
        "string": st.lists(
            st.one_of(
                _texts.map(lambda text: json.dumps(text, ensure_ascii=draw(st.booleans()))),
                st.just("null"),
            ),
            max_size=6,
        ),
    }
    names = draw(
        st.lists(
            st.sampled_from([*FIELDS, "other", "näher"]), max_size=5, unique=draw(st.booleans())
        )
    )
    fields = []
    for name in names:
        kind = FIELDS.get(name) if draw(st.integers(0, 9)) else draw(st.sampled_from(list(any_of)))
        texts: Sequence[str] = draw(any_of[kind or "string"])
        fields.append(f'"{name}"{space}:{space}{list_of(texts)}')
    whole = st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), st.just("null"))
    parts = [
        f'"device":{json.dumps(draw(_texts), ensure_ascii=False)}',
        f'"t":{space}{list_of(draw(_times))}',
        f'"fields":{{{space}{",".join(fields)}{space}}}',
        *(
            f'"{name}":{draw(whole)}'
            for name in ("shift", "kept_at", "sent_at", "received_at")
            if draw(st.booleans())
        ),
        *(
            [
                '"more":'
                + json.dumps(
                    draw(
                        st.recursive(
                            _numbers, lambda inner: st.dictionaries(_texts, inner, max_size=2)
                        )
                    )
                )
            ]
            if draw(st.booleans())
            else []
        ),
    ]
    return ("{" + f"{space},".join(draw(st.permutations(parts))) + space + "}").encode(
        "utf-8", "surrogatepass"
    )


@settings(max_examples=examples(30))
@given(st.lists(documents(), min_size=30, max_size=60))
def test_any_json_is_read_as_spark_reads_it_or_not_at_all(
    spark: SparkSession, values: list[bytes]
) -> None:
    for text, (ours, theirs) in zip(values, both(spark, values), strict=True):
        if ours is not None:
            assert shown(ours) == shown(theirs), text


def of_fields(session: SparkSession, columns: Sequence[Sequence[float | None] | None]) -> Any:
    return session.createDataFrame(
        [(i, column) for i, column in enumerate(columns)], "i int, x array<double>"
    )


@settings(max_examples=examples(10))
@given(
    st.lists(
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), max_size=9)),
        min_size=20,
        max_size=40,
    )
)
def test_sums_are_those_of_the_numbers(
    spark: SparkSession, columns: list[list[float | None] | None]
) -> None:
    made = (
        of_fields(spark, columns)
        .select("i", frame_code.sums(spark, F.col("x")).alias("sums"))
        .collect()
    )

    for row in made:
        numbers = columns[row["i"]]
        sums = tuple(row["sums"])
        if numbers is None:
            assert sums == (0, None, None, None, True)
        elif None in numbers:
            assert sums == (len(numbers), None, None, None, False)
        else:
            total = 0.0
            for number in numbers:
                total += number or 0.0
            assert sums == (
                len(numbers),
                total,
                min(numbers, default=None),
                max(numbers, default=None),
                True,
            )


@pytest.mark.parametrize("count", [0, 1, 40, 3000, 60_000])
@pytest.mark.parametrize("kind", ["double", "string"])
def test_sketches_of_frames_are_those_of_their_values(
    spark: SparkSession, count: int, kind: str
) -> None:
    """With single readings in one sketch and frames in another, some in both: as many as one sketch
    of all tells.
    """
    values: list[Any] = [f"{i * 7}" if kind == "string" else i / 8 for i in range(count)]
    values += [-0.0, 0.0, None] if kind == "double" and count else []
    frames = [values[i : i + 50] for i in range(0, len(values), 50)]
    no_frame: Any = None
    items = spark.createDataFrame(
        [(frame,) for frame in frames] or [(no_frame,)], f"x array<{kind}>"
    )
    hashes = items.select(F.explode("x").alias("x")).select(
        F.when(F.col("x").isNotNull(), F.xxhash64("x")).alias("x")
    )

    sketches = items.select(
        frame_code.distinct_sketch(
            spark, F.col("x"), HLL_LOG2_BUCKETS, are_texts=kind == "string"
        ).alias("items")
    )
    of_frames = sketches.agg(F.hll_union_agg("items", False).alias("frames"))
    of_values = hashes.agg(F.hll_sketch_agg("x", HLL_LOG2_BUCKETS).alias("all"))
    of_some = hashes.limit(count // 2).agg(F.hll_sketch_agg("x", HLL_LOG2_BUCKETS).alias("some"))
    nothing = hashes.limit(0).agg(F.hll_sketch_agg("x", HLL_LOG2_BUCKETS).alias("none"))
    answered = (
        of_frames.crossJoin(of_values)
        .crossJoin(of_some)
        .crossJoin(nothing)
        .select(
            F.hll_sketch_estimate("all").alias("all"),
            frame_code.estimate_union(spark, F.col("none"), F.col("frames")).alias("frames"),
            frame_code.estimate_union(spark, F.col("some"), F.col("frames")).alias("both"),
            frame_code.estimate_union(spark, F.col("all"), F.col("all")).alias("twice"),
            frame_code.estimate_union(spark, F.col("none"), F.col("none")).alias("none"),
        )
    )

    (row,) = answered.collect()
    assert row["none"] == 0
    exact = count if count < 3000 else None
    for name in ("all", "frames", "both", "twice"):
        assert row[name] == (exact if exact is not None else pytest.approx(count, rel=0.03)), name
