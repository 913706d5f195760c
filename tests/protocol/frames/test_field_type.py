"""The one type of a column."""

import pytest

from edgewake.protocol.frames.field_type import FieldType, types_of


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1, 2.5, None], FieldType.NUMBER),
        (["a", None], FieldType.STRING),
        ([True, False], FieldType.BOOLEAN),
        ([None, None], None),
    ],
)
def test_a_column_has_the_one_type_of_its_values(
    column: list[object], kind: FieldType | None
) -> None:
    assert types_of({"a": column}).get("a") == kind  # type: ignore[dict-item]


def test_a_column_of_two_types_is_named() -> None:
    with pytest.raises(TypeError, match="field 'a' mixes bool and int"):
        types_of({"a": [1, True]})
