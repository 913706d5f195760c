"""May a request of an HTTP client be taken, and who sends it? Decided from its head alone. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Protocol

from edgewake.protocol.maps.device_tokens import DeviceTokens, Holder
from edgewake.protocol.maps.http_forms import (
    Form,
    Head,
    Outcome,
    Reply,
    form_of,
    is_question,
    probe,
    reply,
    shown_login,
    shown_token,
)

NO_BROWSER = "no page of a browser sends here"


class Passwords(Protocol):
    """Devices with a password."""

    def holder_of(self, name: str, password: str) -> Holder | None:
        """The device of that name, where the password is its own."""


def known(
    head: Head,
    token: str | None,
    tokens: DeviceTokens | None,
    passwords: Passwords | None = None,
    *,
    form: Form | None = None,
    certified: Holder | None = None,
) -> Head | Reply:
    """The head with the device whose token was shown, or an answer in place of taking the request.

    `token`: what all have to show who show none of `tokens` or `passwords`; where there is none of
    the three, nobody is asked for one. `certified`: the device whose certificate was shown.
    """
    form = form or form_of(head)
    headers = head.headers
    if is_of_a_page(headers):
        return refused(form, head, 403, NO_BROWSER)
    if (found := probe(head)) is not None:
        return found
    shown = shown_token(head)
    holder = certified
    if holder is None and tokens is not None:
        holder = tokens.holder_of(shown)
    if holder is None and passwords is not None:
        holder = passwords.holder_of(*shown_login(head))
    is_known = holder is not None or (
        token is not None and hmac.compare_digest(shown.encode(), token.encode())
    )
    if not is_known and (token is not None or tokens is not None or passwords is not None):
        wanted = "a token" if passwords is None else "the name and password of a device"
        return refused(form, head, 401, f"{wanted} is asked for")
    may_get = form is Form.OTHER or (form is Form.THINGSBOARD and is_question(head))
    if head.method != "POST" and not (head.method == "GET" and may_get):
        return refused(form, head, 405, "readings are posted")
    is_own = holder is not None and not holder.is_gateway
    return head._replace(
        device=holder.device if holder is not None and is_own else "",
        gateway="" if holder is None or is_own else holder.device,
    )


def is_of_a_page(headers: Mapping[str, str]) -> bool:
    """Does a page of a browser send it?"""
    return "origin" in headers or headers.get("sec-fetch-site", "none") != "none"


def refused(form: Form, head: Head, status: int, why: str) -> Reply:
    """In the words of the form's own server."""
    return reply(form, head, Outcome(status, detail=why))
