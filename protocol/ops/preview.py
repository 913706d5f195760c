"""A preview of a query, as it stands on `ew.previews`: what was asked, then what it gives.

Once it is answered it is removed.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

WAIT_MS: Final = 60_000
"""How long a request for a preview is waited for, ms; an older one is not computed any more."""
ROWS_MAX: Final = 1000
"""Results of a preview."""
ANSWER_CHARS_MAX: Final = 400_000
"""Characters of its results together; what is beyond either bound is left out, and said."""


class Preview(BaseModel):
    """A preview (key on `ew.previews`: id). The analysis writes it once more, with its answer."""

    model_config = ConfigDict(frozen=True)

    id: str
    text: str
    """The .sql file."""
    since: int
    """Records count that Kafka has from that time on, ms since 1970 UTC."""
    rows_max: int
    asked_at: int
    rows: tuple[str, ...] | None = None
    """Results as JSON; None before the answer."""
    is_cut: bool = False
    """There are more."""
    error: str = ""
    """The reason why there are no rows."""

    @property
    def is_answered(self) -> bool:
        """Is it done?"""
        return self.rows is not None or self.error != ""
