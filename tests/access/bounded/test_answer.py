"""The answers of pages and snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from starlette.responses import Response

from edgewake.cloud.access.bounded.answer import Form, Page, is_known, response
from edgewake.cloud.access.bounded.bodies import Bodies


def made(page: Page, form: Form) -> Coroutine[Any, Any, Response]:
    return response(page, form, Bodies(), "me", resumes=True, is_public=True, if_none_match="")


async def test_two_who_ask_for_a_table_at_once_are_sent_one() -> None:
    page = Page((b'{"n":1}',), "c", live=True)
    first, second = await asyncio.gather(*(made(page, Form.CSV) for _ in range(2)))
    assert first.headers["etag"] == second.headers["etag"]
    (body, _) = page.texts[Form.CSV]
    assert body.pieces == [b"n\r\n1\r\n"]
    assert sum(body.takers.values()) == 2


async def test_a_page_whose_wait_ran_out_is_kept_by_no_cache() -> None:
    """Nothing is known of what follows: who asks a moment later may find an event."""
    late, whole = (Page((), "c", live=False, is_whole=one) for one in (False, True))
    kept = [(await made(page, Form.JSON)).headers for page in (late, whole)]
    assert kept[0]["cache-control"] == "no-store"
    assert "max-age" in kept[1]["cache-control"], "the control"


async def test_a_cache_gives_a_page_to_nobody_who_goes_on_from_elsewhere() -> None:
    """A cursor in the header Last-Event-ID is no part of the address that a cache keeps it by."""
    headers = (await made(Page((b"{}",), "c", live=False), Form.JSON)).headers
    assert "public" in headers["cache-control"]
    assert "last-event-id" in headers["vary"].lower().split(", ")


async def test_a_cache_gives_a_page_of_one_device_to_no_other() -> None:
    """A bridge asks for each of its devices with the same key, and at the same address."""
    page = response(
        Page((b"{}",), "c", live=False),
        Form.JSON,
        Bodies(),
        "me",
        resumes=True,
        is_public=False,
        if_none_match="",
    )
    headers = (await page).headers
    assert "private, max-age" in headers["cache-control"]
    assert "edgewake-device" in headers["vary"].lower().split(", ")


@pytest.mark.parametrize(
    ("sent", "is_there"),
    [
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ("*", True),
        (" * ", True),
        ("", False),
        ("a", False),
        ('"b", "*"', False),
    ],
)
def test_an_answer_is_known_by_its_tag_however_it_is_sent(sent: str, is_there: bool) -> None:
    """RFC 9110, 13.1.2; `*` is any answer that there is."""
    assert is_known(sent, "a") is is_there
    assert is_known(sent) is ("*" in sent and is_there), "of what has no tag"
