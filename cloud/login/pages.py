"""What people see of the login beside the pages: that it failed, and why."""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import urlencode

from starlette.responses import HTMLResponse

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Edgewake</title><link rel="stylesheet" href="/page/style.css">
<main class="login"><h1>{title}</h1><p role="alert">{why}</p>
<p><a href="{again}">Try again</a> · <a href="/login?{other}">Log in as somebody else</a></p>
</main></html>"""


def failed(
    status: int, why: str, next_path: str, retry_s: int = 5, again: str | None = None
) -> HTMLResponse:
    """A login that did not come to its end; `retry_s`: when it may be tried again.

    `again`: where the same one is; None: another one is begun.
    """
    title = "Nobody can log in now" if status == 503 else "You are not logged in"
    headers = HEADERS | ({"Retry-After": str(retry_s)} if status in (429, 503) else {})
    text = _PAGE.format(
        title=title,
        why=escape(why[:1000]),
        again=escape(again or f"/login?{urlencode({'next': next_path})}"),
        other=escape(urlencode({"next": next_path, "prompt": "login"})),
    )
    return HTMLResponse(text, status, headers=headers)
