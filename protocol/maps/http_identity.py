"""Identifies the sender of an HTTP request by its head alone, and refuses unknown ones. Pure."""

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

NO_BROWSER = "a page in a browser must not send here"


class Passwords(Protocol):
    """Devices with a password."""

    def holder_of(self, name: str, password: str) -> Holder | None:
        """Returns the device of that name if the password is right."""


def identified(
    head: Head,
    token: str | None,
    tokens: DeviceTokens | None,
    passwords: Passwords | None = None,
    *,
    form: Form | None = None,
    certified: Holder | None = None,
) -> Head | Reply:
    """Returns the head with its sender, or the reply that refuses the request.

    `certified` is the device whose certificate was shown. Who shows neither one nor a token of
    `tokens` nor a password of `passwords` must show `token`. Without `token`, `tokens` and
    `passwords` everybody is accepted.
    """
    form = form or form_of(head)
    headers = head.headers
    if is_from_a_page(headers):
        return refusal(form, head, 403, NO_BROWSER)
    if (found := probe(head)) is not None:
        return found
    shown = shown_token(head, form)
    holder = certified
    if holder is None and tokens is not None:
        holder = tokens.holder_of(shown)
    if holder is None and passwords is not None:
        holder = passwords.holder_of(*shown_login(head, form))
    is_known = holder is not None or (
        token is not None and hmac.compare_digest(shown.encode(), token.encode())
    )
    if not is_known and (token is not None or tokens is not None or passwords is not None):
        wanted = "a token" if passwords is None else "the name and password of a device"
        return refusal(form, head, 401, f"{wanted} is required")
    may_get = form is Form.OTHER or (form is Form.THINGSBOARD and is_question(head))
    if head.method != "POST" and not (head.method == "GET" and may_get):
        return refusal(form, head, 405, "expected POST")
    is_own = holder is not None and not holder.is_gateway
    return head._replace(
        device=holder.device if holder is not None and is_own else "",
        gateway="" if holder is None or is_own else holder.device,
    )


def is_from_a_page(headers: Mapping[str, str]) -> bool:
    """Returns whether a page in a browser sent the request."""
    return "origin" in headers or headers.get("sec-fetch-site", "none") != "none"


def refusal(form: Form, head: Head, status: int, why: str) -> Reply:
    """Writes a refusal as the form's own server would."""
    return reply(form, head, Outcome(status, detail=why))
