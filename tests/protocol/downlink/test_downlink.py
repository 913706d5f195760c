"""Messages to a device: what is read, and by which name the rest is refused."""

from __future__ import annotations

from edgewake.protocol.downlink.downlink import (
    ANSWER_FIELDS,
    Answer,
    AnswerState,
    DownKind,
)
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import reading_of


def test_an_answer_is_a_reading_that_the_cloud_takes_whatever_a_command_wrote() -> None:
    long = "\N{SNOWMAN}" * 100_000
    whole = Answer(
        id="a", kind=DownKind.COMMAND, state=AnswerState.FAILED, detail=long, name="n", version=3,
        exit_code=-9, output=long
    )  # fmt: skip
    fields = whole.fields()
    assert fields.keys() == ANSWER_FIELDS.keys()
    assert all(
        isinstance(fields[name], str if kind is FieldType.STRING else int)
        for name, kind in ANSWER_FIELDS.items()
    )
    assert reading_of(fields, now_ms=5) == (5, fields)
    short = Answer(id="a", kind=DownKind.COMMAND, state=AnswerState.DONE, output="")
    assert short.fields() == {"id": "a", "kind": "command", "state": "done"}
