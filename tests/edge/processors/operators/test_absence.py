"""A stream that is silent: an alert, once, by a clock that is passed in."""

from __future__ import annotations

import pytest

from edgewake.edge.processors.operators import absence


@pytest.mark.parametrize(
    "kept", [None, b"", b"[]", b'{"active": true}', b'{"active": true, "since_ms": "x"}']
)
def test_a_state_that_cannot_be_read_is_none(kept: bytes | None) -> None:
    assert absence.resumed(kept, now_s=5.0, now_ms=7) == absence.Absence(5.0, 7)
