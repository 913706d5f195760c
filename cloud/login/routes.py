"""How people log in and out.

GET /login?next=/…       to the identity provider
GET /login/callback      back from it: sets the session's cookie and leads to `next`
GET /login/me            who is logged in here, and whether one can
POST /login/out          ends the session here and tells the provider; says where to end it there
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, FastAPI, Query, Request, Response
from pydantic import BaseModel
from starlette.responses import RedirectResponse

from edgewake.cloud.client_share import Clients
from edgewake.cloud.login import door, pages
from edgewake.cloud.login.desk import LOGIN_S, Desk, LoginFailed, cookie_name
from edgewake.cloud.login.door import STATE
from edgewake.cloud.login.session import Session
from edgewake.cloud.rights.guard import COOKIE
from edgewake.cloud.rights.guard import cookie_of as key_cookie_of
from edgewake.cloud.rights.routes import COOKIE_PATH
from edgewake.cloud.web.cookies import cookie_of
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.origin import is_from_own_page

OWN_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,499}")
"""A path of this server: a browser takes `//x` and `/\\x` for another one."""
PENDING_COOKIE: Final = "edgewake_begun_"
PENDING_PATH: Final = "/login"
PENDING_MAX: Final = 5
"""Logins that one browser may have begun at once, in as many tabs; the first is given up."""
OPEN_PATHS: Final = frozenset({"/login", "/login/callback", "/login/me", "/login/out"})


class Me(BaseModel):
    """The person who is logged in."""

    login: str | None
    """Where people log in; null where they cannot."""
    name: str | None
    """Who is logged in; null where nobody is."""
    has_key: bool
    """Does this browser send a reader's key?"""


class Out(BaseModel):
    """Where to go on after the log-out."""

    next: str


def add(app: FastAPI, desk: Desk | None, clients: Clients) -> None:
    """Add the routes; without a desk `/login/me` alone, which says that nobody can log in.

    `clients` tells them apart: who fails too often has to wait.
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/login/me")
    async def me(http: Request, response: Response) -> Me:
        response.headers["Cache-Control"] = "no-store"
        found = (http.scope.get("state") or {}).get(STATE)
        return Me(
            login=None if desk is None else "/login",
            name=found.name if isinstance(found, Session) else None,
            has_key=key_cookie_of(http.scope) is not None,
        )

    if desk is not None:
        _add_login(router, desk)
        _add_callback(app, desk, clients)
    app.include_router(router)


def _add_login(router: APIRouter, desk: Desk) -> None:
    own = urlsplit(desk.config.url).netloc

    @router.get("/login")
    async def begin(
        http: Request,
        next_path: Annotated[str, Query(alias="next")] = "/",
        prompt: Literal["login", "select_account"] | None = None,
        at: Annotated[str, Query(max_length=1)] = "",
    ) -> Response:
        if OWN_PATH.fullmatch(next_path) is None:
            next_path = "/"
        if http.headers.get("host") != own and not at:
            # The cookie of a login must be of the host that the provider sends people back to.
            asked = {"next": next_path, "at": "1"} | ({"prompt": prompt} if prompt else {})
            return RedirectResponse(f"{desk.config.url}/login?{urlencode(asked)}", 303)
        try:
            begun = await desk.begin(next_path, prompt)
        except LoginFailed as error:
            return pages.failed(error.status, str(error), next_path)
        response = RedirectResponse(begun.address, 303, {"Cache-Control": "no-store"})
        for name in _begun(http)[: -(PENDING_MAX - 1)]:
            response.delete_cookie(name, PENDING_PATH, secure=door.is_secret(desk))
        response.set_cookie(
            _pending_name(begun.state),
            begun.cookie,
            max_age=LOGIN_S,
            path=PENDING_PATH,
            secure=door.is_secret(desk),
            httponly=True,
            samesite="lax",
        )
        return response

    @router.post("/login/out")
    async def out(http: Request, response: Response) -> Out:
        if not is_from_own_page(dict(http.scope["headers"])):
            raise Problem(403, "foreign_page", "log out on a page of this server")
        text = cookie_of(http.scope, cookie_name(desk.config))
        door.drop(response, desk)
        response.headers["Cache-Control"] = "no-store"
        return Out(next=(text and await desk.end(text)) or "/")


def _add_callback(app: FastAPI, desk: Desk, clients: Clients) -> None:
    async def finish(http: Request) -> Response:
        """Providers add parameters of their own; those that are not known are passed over."""
        said = http.query_params
        state = said.get("state", "")
        words = (said.get(key, "")[:200] for key in ("error", "error_description"))
        name, is_over = _pending_name(state), True
        try:
            seen, next_path = await desk.finish(
                state=state,
                code=said.get("code", ""),
                issuer=said.get("iss"),
                refused=": ".join(filter(None, words)),
                pending=cookie_of(http.scope, name),
                client=clients.of_request(http),
            )
        except LoginFailed as failure:
            why = str(failure)
            is_over = not failure.is_for_now
            again = None if is_over else f"{http.url.path}?{http.url.query}"
            response: Response = pages.failed(failure.status, why, "/", failure.retry_s, again)
        else:
            response = RedirectResponse(next_path, 303, {"Cache-Control": "no-store"})
            door.keep(response, desk, seen)
            # Who logs in is that person here, whatever key this browser had.
            response.delete_cookie(COOKIE, COOKIE_PATH, httponly=True, samesite="strict")
        if is_over and name in http.cookies:
            response.delete_cookie(name, PENDING_PATH, secure=door.is_secret(desk), httponly=True)
        return response

    app.add_route("/login/callback", finish, methods=["GET"], include_in_schema=False)


def _pending_name(state: str) -> str:
    return PENDING_COOKIE + re.sub(r"[^A-Za-z0-9_-]", "", state[:12])


def _begun(http: Request) -> list[str]:
    return [name for name in http.cookies if name.startswith(PENDING_COOKIE)]
