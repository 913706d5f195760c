"""Types of fields: one type a column, null anywhere."""

from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import (
    TIME_FORMS_MAX,
    FieldInfo,
    NameKind,
    Stream,
    StreamTable,
    merge,
)


def field(kind: FieldType = FieldType.NUMBER, revision: int = 0, unit: str = "") -> FieldInfo:
    return FieldInfo(type=kind, revision=revision, unit=unit)


def test_of_two_first_types_the_first_on_the_topic_stays() -> None:
    merged = merge(
        Stream(name="s", fields={"a": field()}),
        Stream(name="s", fields={"a": field(FieldType.STRING)}),
    )
    assert merged.fields["a"].type is FieldType.NUMBER


def test_an_operators_revision_wins_before_and_after() -> None:
    learnt, decided = (
        Stream(name="s", fields={"a": field()}),
        Stream(name="s", fields={"a": field(FieldType.STRING, 1, "kg")}),
    )
    assert merge(learnt, decided) == merge(decided, learnt) == decided


def test_a_field_takes_the_first_unit_that_is_said_unless_its_unit_was_decided() -> None:
    none = FieldInfo(type=FieldType.NUMBER, unit_revision=1)
    bare, kelvin, celsius, typed, decided = (
        Stream(name="s", fields={"a": one})
        for one in (field(), field(unit="K"), field(unit="Cel"), field(revision=1), none)
    )
    assert merge(bare, kelvin) == merge(kelvin, bare) == merge(kelvin, celsius) == kelvin
    assert merge(decided, kelvin) == merge(kelvin, decided) == decided
    both = Stream(name="s", fields={"a": field(revision=1, unit="K")})
    assert merge(typed, kelvin) == merge(kelvin, typed) == both, "its type is another matter"


def test_a_decided_unit_and_a_decided_type_win_each_by_itself() -> None:
    typed = Stream(name="s", fields={"a": field(FieldType.STRING, 1, "Cel")})
    united = FieldInfo(type=FieldType.NUMBER, unit="K", unit_revision=1)
    found = {
        merge(*rows).fields["a"]
        for rows in (
            (typed, Stream(name="s", fields={"a": united})),
            (Stream(name="s", fields={"a": united}), typed),
        )
    }
    assert found == {field(FieldType.STRING, 1, "K").model_copy(update={"unit_revision": 1})}


def test_a_field_that_a_later_row_lacks_stays() -> None:
    assert set(
        merge(
            Stream(name="s", fields={"a": field()}), Stream(name="s", fields={"b": field()})
        ).fields
    ) == {"a", "b"}


def test_forms_of_time_come_together_and_the_first_device_stays() -> None:
    one = Stream(name="s", times={"t (s)": "a"})
    other = Stream(name="s", revision=1, times={"t (s)": "b", "t (iso)": "b"})
    both = {"t (s)": "a", "t (iso)": "b"}
    assert merge(one, other).times == both
    assert merge(merge(one, other), one).times == both
    many = Stream(name="s", times={f"t ({n})": "c" for n in range(TIME_FORMS_MAX)})
    assert len(merge(one, many).times) == TIME_FORMS_MAX


def test_a_name_belongs_to_whoever_was_first_and_to_a_higher_claim_after_that() -> None:
    stream, query = (
        Stream(name="s", fields={"a": field()}),
        Stream(name="s", kind=NameKind.QUERY, claim="1"),
    )
    assert merge(stream, query) == stream
    assert merge(query, stream) == query
    assert merge(query, query.model_copy(update={"claim": "2"})).claim == "1"
    assert merge(query, query.model_copy(update={"claim": "2", "revision": 1})).claim == "2"


def test_a_table_tells_when_the_topics_last_record_is_not_the_merged_row() -> None:
    table = StreamTable()
    first, second = (Stream(name="s", fields={name: field()}) for name in "ab")
    assert table.apply("s", first.model_dump_json().encode())
    assert not table.apply("s", second.model_dump_json().encode())
    assert table.apply("s", table["s"].model_dump_json().encode())
    assert table.apply("s", None)
    assert table == {}
