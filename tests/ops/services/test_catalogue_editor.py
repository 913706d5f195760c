"""An operator's change of a stream's row."""

from __future__ import annotations

import pytest

from edgewake.cloud.ops.services.catalogue_editor import FieldChange, StreamChange, changed
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

ROW = Stream(name="s", fields={"a": FieldInfo(type=FieldType.NUMBER, unit="Cel", first_device="d")})


def test_what_is_left_out_stays_and_each_change_takes_precedence_over_what_bridges_learnt() -> None:
    change = StreamChange(
        description="what it is",
        fields={"a": FieldChange(unit=""), "b": FieldChange(type=FieldType.STRING)},
    )
    assert changed(ROW, change, now=9) == ROW.model_copy(
        update={
            "description": "what it is",
            "revision": ROW.revision + 1,
            "fields": {
                "a": FieldInfo(
                    type=FieldType.NUMBER, unit_revision=1, first_device="d", changed_at=9
                ),
                "b": FieldInfo(type=FieldType.STRING, revision=1, changed_at=9),
            },
        }
    )
    assert changed(ROW, StreamChange(fields={"a": FieldChange()}), now=9).revision == ROW.revision


def test_a_new_field_needs_a_type() -> None:
    with pytest.raises(Problem, match="has no field 'b': expected its type"):
        changed(ROW, StreamChange(fields={"b": FieldChange(unit="m")}), now=9)


def test_a_unit_decides_no_type_and_a_type_no_unit() -> None:
    """After a unit was set, values of another type were refused for good."""
    other = FieldInfo(type=FieldType.NUMBER, unit="Cel", other_unit="K by e")
    row = Stream(name="s", fields={"a": other})
    united = changed(row, StreamChange(fields={"a": FieldChange(unit="K")}), now=9).fields["a"]
    assert (united.revision, united.unit_revision) == (0, 1)
    assert (united.unit, united.other_unit) == ("K", "")
    typed = changed(row, StreamChange(fields={"a": FieldChange(type="string")}), now=9).fields["a"]
    assert (typed.revision, typed.unit_revision, typed.other_unit) == (1, 0, "K by e")
