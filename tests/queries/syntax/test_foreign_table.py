"""The header of a table that is somebody else's topic."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.syntax.foreign_table import Foreign, read_foreign
from edgewake.cloud.queries.terms.functions import STRING, TIME
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType


def test_a_table_has_its_columns_and_two_that_each_row_has() -> None:
    assert read_foreign(" tariffs (price number, unit STRING) FROM erp.tariffs ") == Foreign(
        "tariffs",
        "erp.tariffs",
        {"price": FieldType.NUMBER, "unit": FieldType.STRING, "key": STRING, "event_time": TIME},
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tariffs from erp.tariffs", "expected e.g."),
        ("Tariffs (price number) from erp.tariffs", "not a name of a table"),
        ("tariffs (price number) from ew.up", "a topic of Edgewake's own"),
        ("tariffs (price number, price string) from t", "1 to 64 different columns"),
        ("tariffs (key string) from t", "not a name of a column"),
        ("tariffs () from t", "not a name of a column"),
        ("tariffs (price money) from t", "price 'money': expected"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        read_foreign(text)
