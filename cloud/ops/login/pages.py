"""The login page: a link with a ticket, or a form for the key.

`edgewake up` and `edgewake login` print such a link.

    GET /in?ticket=…     once, within ten minutes: sets the session's cookie and leads to the pages
    GET /in              the form
    POST /in             key=…
"""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from edgewake.cloud.ops.login.auth import LOGIN_PATH, Access, cookie_name
from edgewake.cloud.ops.login.keys import Holder
from edgewake.cloud.ops.login.sessions import SESSION_LIFE_S, TICKET_LIFE_S
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.origin import is_from_own_page

HOME_PATH: Final = "/"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    # With no-referrer the form would say `Origin: null`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# Our own page leads on, not a redirect: a strict cookie is not sent along where another site's link
# began the journey.
DONE: Final = f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="refresh" content="0;url={HOME_PATH}">
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<title>Edgewake operations</title><p>You are in. <a href="{HOME_PATH}">Go on</a></p></html>"""
FORM: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Edgewake operations</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/style.css">
<script src="/page/ops/in.js" type="module"></script></head>
<body><main class="asks"><section class="login" aria-label="Log in">
<h1><img src="/page/icon.svg" alt="" width="22" height="22">Edgewake operations</h1>
<p>{text}</p>{people}
<form method="post" action="/in"><label>Key
<input type="password" name="key" autocomplete="current-password" required autofocus>
</label> <button>Log in</button></form></section></main></body></html>"""
PEOPLE: Final = """<p><a class="button" href="/login?next=/">Log in as yourself</a></p>
<p>at {provider}, or there
<a href="/login?next=/&amp;prompt=login">as somebody else</a>.</p>"""
WELCOME: Final = "Enter a key of the key file, or let <code>edgewake login</code> print a link."


class Ticket(BaseModel):
    """Opens a session once."""

    path: str
    """The path to open in a browser on this server."""
    expires_in_s: int = TICKET_LIFE_S


def add(app: FastAPI, access: Access) -> None:
    """Add the login's pages; tickets and the session's end are ordinary routes."""

    @app.get(LOGIN_PATH, include_in_schema=False)
    async def enter(request: Request, ticket: str | None = None) -> Response:
        if ticket is None:
            refused = _why_not(request, access)
            return _form(access, refused or WELCOME, 403 if refused else 200)
        if b"prefetch" in dict(request.scope["headers"]).get(b"sec-purpose", b""):
            raise Problem(
                503, "prefetch", "a ticket works once: open it yourself, without preloading"
            )
        holder = access.tickets.use_up(ticket)
        if holder is None or access.ended(holder) is not None:
            text = (
                f"This link was used already or is older than {TICKET_LIFE_S // 60} minutes. "
                f"{WELCOME}"
            )
            return _form(access, text, 401)
        return _open(request, access, holder)

    @app.post(LOGIN_PATH, include_in_schema=False)
    async def log_in(request: Request) -> Response:
        if not is_from_own_page(dict(request.scope["headers"])):
            raise Problem(
                403, "foreign_page", "this form belongs to another server: open the login page here"
            )
        key = (
            parse_qs((await request.body()).decode("utf-8", "replace")).get("key", [""])[0].strip()
        )
        try:
            holder = await access.find(key.encode(), access.clients.of_request(request))
        except Problem as problem:
            text = escape(f"{problem.detail[:1].upper()}{problem.detail[1:]}.")
            form = _form(access, text, problem.status)
            form.headers.update(problem.headers or {})
            return form
        if holder is None:
            return _form(access, f"This key is not known. {WELCOME}", 401)
        return _open(request, access, holder)


def _form(access: Access, text: str, status: int) -> HTMLResponse:
    """`text`: HTML."""
    people = ""
    if access.people is not None:
        provider = urlsplit(access.people.desk.config.issuer).netloc
        people = PEOPLE.format(provider=escape(provider))
    return HTMLResponse(FORM.format(text=text, people=people), status, headers=HEADERS)


def _why_not(request: Request, access: Access) -> str:
    """Why who is logged in does not get in; empty for who is not. HTML."""
    if access.people is None:
        return ""
    try:
        session = access.people.session_of(request.scope.get("state") or {})
        if session is not None:
            access.people.holder(session)
    except Problem as problem:
        return escape(f"{problem.detail[:1].upper()}{problem.detail[1:]}.")
    return ""


def _open(request: Request, access: Access, holder: Holder) -> Response:
    response = HTMLResponse(DONE, headers=HEADERS)
    response.set_cookie(
        cookie_name(request.scope),
        access.sessions.issue(holder),
        max_age=SESSION_LIFE_S,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response
