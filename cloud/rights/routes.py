"""How a browser brings its right along: a cookie for its own pages, a ticket for everything else.

POST /v1/session     sets the cookie `edgewake_reader`, which no script can read
DELETE /v1/session   takes it away
POST /v1/tickets     a ticket for `?ticket=` of one request within 30 s
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from edgewake.cloud.client_share import Clients
from edgewake.cloud.rights.guard import COOKIE, ReaderAsks, credential_of, unknown
from edgewake.cloud.rights.principal import holder
from edgewake.cloud.rights.tickets import TICKET_LIFE_S, Tickets, TooManyTickets
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.clock import Clock

COOKIE_BYTES_MAX: Final = 3800
"""Bytes of a key or token in a cookie: browsers keep 4096 with its name and attributes."""
COOKIE_PATH: Final = "/v1"


class Ticket(BaseModel):
    """Opens one request."""

    ticket: str
    """For the parameter `ticket`."""
    expires_in_s: int = TICKET_LIFE_S


def router(tickets: Tickets, clients: Clients, clock: Clock) -> APIRouter:
    """The routes; what they need of a principal the guard has done."""
    routes = APIRouter()

    @routes.post("/v1/tickets", responses=problems(429))
    async def ticket(http: Request, reader: ReaderAsks, response: Response) -> Ticket:
        """A ticket: it stands for you once, in `?ticket=`, within 30 s."""
        response.headers["Cache-Control"] = "no-store"
        try:
            return Ticket(ticket=tickets.issue(reader, holder(reader, clients.of_request(http))))
        except TooManyTickets as error:
            raise Problem(
                429, "too_many_tickets", str(error), headers={"Retry-After": str(TICKET_LIFE_S)}
            ) from error

    @routes.post("/v1/session", status_code=204, responses=problems(401))
    async def begin(http: Request, reader: ReaderAsks) -> Response:
        """Have this browser send your key or token along, in a cookie that no script can read."""
        given = credential_of(http.scope)
        if given is None:
            raise unknown("key_missing", "a cookie stands for a key or token: expected one")
        if len(given) > COOKIE_BYTES_MAX:
            raise Problem(
                422,
                "cookie",
                f"a cookie holds at most {COOKIE_BYTES_MAX} bytes: take a ticket (POST "
                "/v1/tickets)",
            )
        answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
        left_s = (
            None
            if reader.expires_at is None
            else max(0, (reader.expires_at - clock.now_ms()) // 1000)
        )
        answer.set_cookie(
            COOKIE,
            given.decode("latin-1"),
            max_age=left_s,
            path=COOKIE_PATH,
            secure=_is_secure(http, clients),
            httponly=True,
            samesite="strict",
        )
        return answer

    @routes.delete("/v1/session", status_code=204)
    async def end(http: Request, _: ReaderAsks) -> Response:
        """Take the cookie away. The key or token itself stays good."""
        answer = Response(status_code=204)
        answer.delete_cookie(
            COOKIE, COOKIE_PATH, secure=_is_secure(http, clients), httponly=True, samesite="strict"
        )
        return answer

    return routes


def _is_secure(http: Request, clients: Clients) -> bool:
    """Did the browser come by TLS, to us or to a proxy of ours?"""
    peer = http.client.host if http.client else None
    said = http.headers.get("x-forwarded-proto", "") if clients.is_proxy(peer) else ""
    return "https" in (http.url.scheme, said)
