"""What becomes of values of the wrong type, so that the good ones beside them pass.

No I/O.

Such a value becomes null in its reading. Of a plain device its text stands beside it; of a frame,
the reading as it came is kept as a dead letter. A frame in which a field has the wrong type
throughout is a matter of the stream: its agent is asked to wait until somebody decides. In a stream
whose fields are given (requests, answers) any other value is wrong in any case; the request that
had it says so, and its sender is told.

What comes back from the dead letters after somebody decided is read by the decided types.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from edgewake.protocol.downlink.downlink import REQUEST_WRONG
from edgewake.protocol.frames.field_names import ODD, ODD_CHARS_MAX
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import as_declared, is_no_value, is_nothing
from edgewake.protocol.frames.frame import Frame, Scalar
from edgewake.protocol.names import is_field

ITEMS_MAX: Final = 16
"""Readings of one frame that are set aside, each a dead letter; with more of them wrong the frame
is refused whole."""
_PYTHON: Final[Mapping[FieldType, frozenset[type]]] = {
    FieldType.NUMBER: frozenset({int, float}),
    FieldType.STRING: frozenset({str}),
    FieldType.BOOLEAN: frozenset({bool}),
}
_NONE: Final[frozenset[type]] = frozenset()
_TYPES: Final = {python: kind for kind, pythons in _PYTHON.items() for python in pythons}
DETAIL_CHARS_MAX: Final = 500
"""Characters that say what was wrong in a reading; names of further fields are left out."""
_PASSED: Final = "; what was right passed"
_NAMED: Final = re.compile(r"field '([^']+)': expected")


class Aside(NamedTuple):
    """A reading that was set aside."""

    payload: bytes
    """The reading as a plain device would send it: JSON, flat."""
    detail: str


def without_wrong(
    frame: Frame, expected: Mapping[str, FieldType], *, given: bool
) -> tuple[Frame, Sequence[Aside]] | None:
    """The frame without wrong values, and the readings that had them.

    None where there is nothing good, nothing wrong or too much of it. `expected`: the types of the
    stream's fields; with `given` there are no others.
    """
    wrong: dict[int, list[str]] = {}
    columns: dict[str, Sequence[Scalar]] = {}
    for name, column in frame.fields.items():
        good = _good(column, expected.get(name), given=given)
        rows = [
            row for row, value in enumerate(column) if value is not None and type(value) not in good
        ]
        if rows and not given and len(rows) == sum(value is not None for value in column):
            return None
        for row in rows:
            wrong.setdefault(row, []).append(name)
        if good:
            columns[name] = (
                [None if row in rows else value for row, value in enumerate(column)]
                if rows
                else column
            )
    if not 0 < len(wrong) <= min(ITEMS_MAX, len(frame.t) - 1):
        return None
    details = {row: _detail(frame, row, names, expected) for row, names in wrong.items()}
    if REQUEST_WRONG in expected and given:
        columns[REQUEST_WRONG] = [details.get(row) for row in range(len(frame.t))]
    return frame._replace(fields=columns), [
        Aside(_reading(frame, row), detail) for row, detail in details.items()
    ]


def without_words(frame: Frame, known: Container[str]) -> Frame:
    """A plain reading without words for no value in fields that are new: they tell no type."""
    words = [
        name for name, (value,) in frame.fields.items() if name not in known and is_nothing(value)
    ]
    if not words:
        return frame
    return frame._replace(fields={**frame.fields, **{name: [None] for name in words}})


def with_odd(
    frame: Frame, expected: Mapping[str, FieldType], *, has_room: bool = True
) -> tuple[Frame, Sequence[Aside]]:
    """A plain reading with odd values as null, each as text in the field `<name>_odd` beside it.

    As an agent does it. Where that field cannot be, the reading is set aside as it came.
    `has_room`: may its stream have new fields?
    """
    fields = dict(frame.fields)
    lost: list[str] = []
    for name, (value,) in frame.fields.items():
        kind = expected.get(name)
        if value is None or kind is None or type(value) in _PYTHON[kind]:
            continue
        fields[name] = [None]
        if is_no_value(value, kind):
            continue
        beside = name + ODD
        is_known = expected.get(beside) is FieldType.STRING
        is_new = has_room and beside not in expected and is_field(beside)
        if beside not in frame.fields and (is_known or is_new):
            fields[beside] = [str(value)[:ODD_CHARS_MAX]]
        else:
            lost.append(name)
    aside = [Aside(_reading(frame, 0), _detail(frame, 0, lost, expected))] if lost else []
    return frame._replace(fields=fields), aside


def as_decided(
    frame: Frame, decided: Mapping[str, FieldType], expected: Mapping[str, FieldType]
) -> Frame:
    """A frame that comes back after a decision, with its values read by the decided types.

    A value that cannot be read so stands as text in `<name>_odd`, as an agent would have put it,
    and a text that stands there is a value again if it can be read. A field that has no room for
    its texts stays as it is, and is refused as before. The same frame where nothing changes.
    """
    columns = dict(frame.fields)
    changed = False
    for name, kind in decided.items():
        if name not in frame.fields:
            continue
        beside = name + ODD
        nothing: Sequence[Scalar] = [None] * len(frame.t)
        column, texts = frame.fields[name], frame.fields.get(beside, nothing)
        pairs = [_read(*pair, kind) for pair in zip(column, texts, strict=True)]
        odd = [text for _, text in pairs]
        has_room = expected.get(beside, FieldType.STRING) is FieldType.STRING and is_field(beside)
        if any(odd) and not has_room:
            continue
        if all(found is value for (found, _), value in zip(pairs, column, strict=True)):
            continue  # compared as objects: 1 and True are equal
        changed = True
        columns[name] = [value for value, _ in pairs]
        columns.pop(beside, None)
        if any(odd):
            columns[beside] = odd
    return frame._replace(fields=columns) if changed else frame


def _read(value: Scalar, text: Scalar, kind: FieldType) -> tuple[Scalar, Scalar]:
    """A value by the decided type, and the odd text beside it."""
    source = text if value is None else value
    try:
        found = as_declared(source, kind)
    except ValueError:
        # with a text there already, there is room for one of the two only
        return (value, text) if text is not None else (None, str(value)[:ODD_CHARS_MAX])
    return found, None if value is None else text


def fields_aside(detail: str) -> frozenset[str] | None:
    """The fields of a reading that was set aside which did not pass with its frame.

    `detail`: what its dead letter says; None where it says another thing.
    """
    return frozenset(_NAMED.findall(detail)) if detail.endswith(_PASSED) else None


def _good(column: Sequence[Scalar], kind: FieldType | None, *, given: bool) -> frozenset[type]:
    """The types that a column's values may have: of a new field those of the first one."""
    if kind is not None:
        return _PYTHON[kind]
    first = next((value for value in column if value is not None), None)
    return _NONE if given or first is None else _PYTHON[_TYPES[type(first)]]


def _detail(frame: Frame, row: int, names: Sequence[str], expected: Mapping[str, FieldType]) -> str:
    said = []
    for name in names:
        found = _TYPES[type(frame.fields[name][row])]
        said.append(
            f"field {name!r}: expected "
            f"{f'a {expected[name]}' if name in expected else 'none or another type'}, found a "
            f"{found}"
        )
    wrong = f"reading {(frame.seq or 0) + row}: {'; '.join(said)}"
    return wrong[: DETAIL_CHARS_MAX - len(_PASSED)] + _PASSED


def _reading(frame: Frame, row: int) -> bytes:
    values = {name: column[row] for name, column in frame.fields.items() if column[row] is not None}
    return orjson.dumps({"t": frame.t[row], **values})
