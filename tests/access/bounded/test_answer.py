"""The answers of pages and snapshots."""

from __future__ import annotations

from edgewake.cloud.access.bounded.answer import Form, Page, response
from edgewake.cloud.access.bounded.bodies import Bodies


def test_a_page_whose_wait_ran_out_is_kept_by_no_cache() -> None:
    """Nothing is known of what follows: who asks a moment later may find an event."""
    late, whole = (Page((), "c", live=False, is_whole=one) for one in (False, True))
    kept = [
        response(
            page, Form.JSON, Bodies(), "me", resumes=True, is_public=True, if_none_match=""
        ).headers
        for page in (late, whole)
    ]
    assert kept[0]["cache-control"] == "no-store"
    assert "max-age" in kept[1]["cache-control"], "the control"
