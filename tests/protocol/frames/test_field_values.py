"""A value as the type that somebody declared."""

from __future__ import annotations

import pytest

from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import as_declared
from edgewake.protocol.frames.frame import Scalar

N, S, B = FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (21.5, N, 21.5), (3, N, 3), ("21.5", N, 21.5), (" 21,5 °C ", N, 21.5), ("-3", N, -3),
        ("+1.5e3 W", N, 1500), ("48%", N, 48),
        (".5", N, 0.5),
        ("ON", N, 1), ("off", N, 0), (True, N, 1), ("true", N, 1), ("NaN", N, None), ("", N, None),
        ("unavailable", N, None),
        (None, N, None),
        ("ON", B, True), ("false", B, False), (1, B, True), (0.0, B, False), ("closed", B, False),
        (True, B, True), ("null", B, None),
        ("1", B, True), (" 0 ", B, False), ("1.0", B, True), ("0.0", B, False), ("1", N, 1),
        (21.5, S, "21.5"), (True, S, "true"), ("nan", S, "nan"), (7, S, "7"),
    ],
)  # fmt: skip
def test_what_devices_write_for_a_value(value: Scalar, kind: FieldType, found: Scalar) -> None:
    made = as_declared(value, kind)
    assert made == found
    assert isinstance(made, bool) is isinstance(found, bool)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("warm", N),
        ("12:30", N),
        ("1.2.3", N),
        ("1 2", N),
        ("9" * 100, N),
        (2, B),
        ("2", B),
        ("10", B),
        ("1 V", B),
        ("maybe", B),
        (-1, B),
        ("1,2,3", N),
    ],
)
def test_what_is_none_of_it(value: Scalar, kind: FieldType) -> None:
    with pytest.raises(ValueError, match="expected"):
        as_declared(value, kind)
