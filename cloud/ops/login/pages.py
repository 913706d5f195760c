"""The login page: a link with a ticket, or a form for the key.

`edgewake up` and `edgewake login` print such a link.

    GET /in?ticket=…     once, within ten minutes: sets the session's cookie and leads to the pages
    GET /in              the form
    POST /in             key=…
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

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
        "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
<title>Edgewake operations</title><p>You are in. <a href="{HOME_PATH}">Go on</a></p></html>"""
FORM: Final = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>Edgewake operations</title><h1>Edgewake operations</h1>
<p>{text}</p><form method="post" action="/in"><label>Key
<input type="password" name="key" autocomplete="current-password" required autofocus>
</label> <button>Log in</button></form></html>"""
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
            return HTMLResponse(FORM.format(text=WELCOME), headers=HEADERS)
        if b"prefetch" in dict(request.scope["headers"]).get(b"sec-purpose", b""):
            raise Problem(503, "prefetch", "a ticket is used once, by a person")
        holder = access.tickets.use_up(ticket)
        if holder is None or not access.keys.is_valid(holder):
            text = (
                f"This link was used already or is older than {TICKET_LIFE_S // 60} minutes. "
                f"{WELCOME}"
            )
            return HTMLResponse(FORM.format(text=text), 401, headers=HEADERS)
        return _open(request, access, holder)

    @app.post(LOGIN_PATH, include_in_schema=False)
    async def log_in(request: Request) -> Response:
        if not is_from_own_page(dict(request.scope["headers"])):
            raise Problem(403, "foreign_page", "the form of another server")
        key = (
            parse_qs((await request.body()).decode("utf-8", "replace")).get("key", [""])[0].strip()
        )
        holder = access.keys.find(key.encode())
        if holder is None:
            return HTMLResponse(
                FORM.format(text=f"This key is not known. {WELCOME}"), 401, headers=HEADERS
            )
        return _open(request, access, holder)


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
