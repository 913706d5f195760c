"""What a card of a board may be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from edgewake.protocol.ops.board import COLUMNS, Card

GAUGE = {"kind": "gauge", "source": "heat", "field": "t", "x": 0, "y": 0, "w": 2, "h": 2}


def test_a_card_shows_one_source_within_the_board_s_columns() -> None:
    card = Card.model_validate(GAUGE | {"x": COLUMNS - 2, "low": 0, "high": 1})
    assert (card.x + card.w, card.low, card.high) == (COLUMNS, 0, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [({"source": None}, "one: a stream or a query"), ({"kind": "text"}, "has none"),
     ({"field": None}, "shows one field"), ({"device": "a", "group": "g"}, "instead of a device"),
     ({"x": COLUMNS - 1}, f"at most {COLUMNS} columns"), ({"low": 1, "high": 1}, "low < high"),
     ({"kind": "chart", "low": 1}, "on a gauge alone")],
)  # fmt: skip
def test_what_does_not_fit_together_is_said(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Card.model_validate(GAUGE | change)
