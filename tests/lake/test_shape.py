"""Which columns a table has whose files differ."""

from __future__ import annotations

from edgewake.cloud.lake.shape import Column, ColumnType, Kind, columns, expressions, physical

NUMBER, STRING = ColumnType.NUMBER, ColumnType.STRING


def test_a_new_field_is_null_in_older_files() -> None:
    old, new = {"a": NUMBER}, {"a": NUMBER, "b": STRING}
    table = columns(Kind.STREAM, [old, new])
    assert [column.name for column in table] == ["a", "b"]
    assert expressions(Kind.STREAM, table, old) == ['"a"::DOUBLE AS "a"', 'NULL::VARCHAR AS "b"']


def test_a_field_of_another_type_is_told_apart() -> None:
    old, new = {"a": STRING}, {"a": NUMBER}
    table = columns(Kind.STREAM, [old, new])
    assert table == [Column("a", "a", NUMBER), Column("a@string", "a", STRING)]
    assert expressions(Kind.STREAM, table, old) == [
        'NULL::DOUBLE AS "a"',
        '"a"::VARCHAR AS "a@string"',
    ]


def test_fields_that_differ_by_capitals_or_are_named_like_the_envelope_have_own_columns() -> None:
    assert physical(Kind.STREAM, ["speed", "Speed", "Device"]) == {
        "Device": "Device@2",
        "Speed": "Speed",
        "speed": "speed@2",
    }
