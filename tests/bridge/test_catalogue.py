"""Streams and fields are learnt from what arrives; fields may be added, never retyped; the topic decides between bridges."""

import pytest

from edgewake.cloud.bridge.catalogue import STREAM_FIELDS_MAX, Catalogue
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.stream import STREAMS_MAX, FieldInfo, FieldType, Stream

NUMBERS = {"speed": frozenset({float, int, type(None)})}
STRINGS = {"speed": frozenset({str})}


def row(name: str = "s", **fields: FieldType) -> bytes:
    return Stream(name=name, fields={field: FieldInfo(type=kind) for field, kind in fields.items()}).model_dump_json().encode()


def test_a_new_stream_is_learnt_and_published_once() -> None:
    catalogue = Catalogue()
    catalogue.check("s", NUMBERS)
    catalogue.check("s", NUMBERS)
    assert catalogue.unpublished() == [Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})]
    assert catalogue.unpublished() == []


def test_a_new_field_is_added_beside_the_known_ones() -> None:
    catalogue = Catalogue()
    catalogue.follow("s", row(speed=FieldType.NUMBER))
    catalogue.check("s", {"street": frozenset({str})})
    (learnt,) = catalogue.unpublished()
    assert list(learnt.fields) == ["speed", "street"]


def test_a_retyped_field_is_rejected() -> None:
    catalogue = Catalogue()
    catalogue.check("s", NUMBERS)
    with pytest.raises(Rejected, match="expected a number, found a string") as refused:
        catalogue.check("s", STRINGS)
    assert refused.value.reason is RejectReason.FIELD_TYPE


def test_a_column_of_several_types_is_rejected() -> None:
    with pytest.raises(Rejected, match="mixes float and str"):
        Catalogue().check("s", {"speed": frozenset({float, str})})


def test_a_column_of_nulls_says_nothing_of_its_type() -> None:
    catalogue = Catalogue()
    catalogue.check("s", {"speed": frozenset({type(None)})})
    catalogue.check("s", STRINGS)


def test_where_two_bridges_learn_at_once_the_topics_order_decides() -> None:
    """Both hear both records in the same order and end with the same types."""
    one, other = Catalogue(), Catalogue()
    one.check("s", NUMBERS)
    other.check("s", STRINGS)
    for value in (row(speed=FieldType.NUMBER), row(speed=FieldType.STRING)):
        one.follow("s", value)
        other.follow("s", value)
    assert one.get("s") == other.get("s")
    one.check("s", STRINGS)


def test_a_field_that_the_other_bridges_record_forgot_is_learnt_again() -> None:
    catalogue = Catalogue()
    catalogue.check("s", NUMBERS)
    catalogue.unpublished()
    catalogue.follow("s", row(street=FieldType.STRING))
    catalogue.check("s", NUMBERS)
    (learnt,) = catalogue.unpublished()
    assert set(learnt.fields) == {"speed", "street"}


def test_units_and_description_survive_a_new_field() -> None:
    declared = Stream(name="s", description="cars", fields={"speed": FieldInfo(type=FieldType.NUMBER, unit="km/h")})
    catalogue = Catalogue()
    catalogue.follow("s", declared.model_dump_json().encode())
    catalogue.check("s", {"street": frozenset({str})})
    (learnt,) = catalogue.unpublished()
    assert (learnt.description, learnt.fields["speed"].unit) == ("cars", "km/h")


def test_streams_are_bounded() -> None:
    catalogue = Catalogue()
    for i in range(STREAMS_MAX):
        catalogue.check(f"s{i}", NUMBERS)
    with pytest.raises(Rejected, match="one more than") as refused:
        catalogue.check("one_more", NUMBERS)
    assert refused.value.reason is RejectReason.OVERSIZE


def test_fields_of_a_stream_are_bounded() -> None:
    catalogue = Catalogue()
    for i in range(STREAM_FIELDS_MAX):
        catalogue.check("s", {f"f{i}": frozenset({int})})
    with pytest.raises(Rejected, match="fields"):
        catalogue.check("s", {"one_more": frozenset({int})})


@pytest.mark.parametrize("value", [b"x", b"{}", b'{"name":"other"}', b'{"name":"s","fields":{"a":{"type":"date"}}}'])
def test_a_record_that_cannot_be_read_changes_nothing(value: bytes) -> None:
    catalogue = Catalogue()
    with pytest.raises(ValueError, match="s"):
        catalogue.follow("s", value)
    assert catalogue.get("s") is None


def test_a_deleted_stream_is_forgotten() -> None:
    catalogue = Catalogue()
    catalogue.check("s", NUMBERS)
    catalogue.follow("s", None)
    catalogue.check("s", STRINGS)
