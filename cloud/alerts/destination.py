"""Destinations: what an operator may give, and how it is sealed.

A webhook is called as Standard Webhooks say, with a secret by which the receiver knows us, and with
headers of its owner, such as `Authorization`. All else is an address of Apprise: mailtos://,
ntfys://, slack://, matrixs:// and a hundred others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, StringConstraints

from edgewake.cloud.calls import endpoint, own_headers, sealing, webhook
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.ops.alert import Destination

WEBHOOK: Final = "webhook"
ADDRESS_CHARS_MAX: Final = 2048
"""Characters of an address."""
_SCHEME: Final = re.compile(r"([a-z][a-z0-9]{1,30})://")
_OWN: Final = frozenset({"http", "https"})
_REFUSED: Final = frozenset(
    {"dbus", "qt", "kde", "glib", "gnome", "macosx", "windows", "syslog", "smpp", "file", "growl"}
)
"""Schemes of Apprise that are refused: they talk to this machine, and to no person."""


class DestinationRefused(EdgewakeError):
    """An address that notes are not sent to."""


class DestinationText(BaseModel):
    """A destination as an operator gives it; none of the values is shown again."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[str, StringConstraints(min_length=4, max_length=ADDRESS_CHARS_MAX)]
    """https://… for a webhook, or an address of Apprise."""
    secret: str | None = None
    """A webhook's secret: `whsec_` and base64. Without it the one of before stays, as long as
    `address` does; where there is none, one is made, and shown this once."""
    headers: dict[str, str] | None = None
    """A webhook's own headers for each call, such as `Authorization`: at most 8, 2 KB together.
    Without it those of before stay, as long as `address` does; `{}` removes them."""


def kind_of(address: str) -> str:
    """webhook, or Apprise's scheme. Raises DestinationRefused."""
    found = _SCHEME.match(address)
    if found is None:
        raise DestinationRefused(
            "address: expected https://… (a webhook) or an address of Apprise, e.g. "
            "mailtos://user:password@mail.example.org?to=oncall@example.org"
        )
    scheme = found[1]
    if scheme in _REFUSED:
        raise DestinationRefused(f"address: {scheme}:// speaks to the server's own machine")
    if scheme in _OWN:
        return WEBHOOK
    import apprise

    if apprise.Apprise.instantiate(address, suppress_exceptions=True) is None:
        raise DestinationRefused(
            f"address: Apprise cannot read it as {scheme}://…; its documentation shows the form"
        )
    return scheme


def sealed(
    name: str,
    text: DestinationText,
    before: sealing.Endpoint | None,
    *,
    sealer: sealing.Sealer,
    allow_hosts: tuple[str, ...],
    random_bytes: Callable[[int], bytes],
    at: int,
    by: str,
) -> tuple[Destination, str | None]:
    """The row, and the secret where one was made. `before`: what is kept under this name.

    Raises DestinationRefused, EndpointRefused or ValueError (the secret).
    """
    kind = kind_of(text.address)
    made = None
    secret = text.secret or ""
    headers: Mapping[str, str] = {}
    if kind == WEBHOOK:
        endpoint.parse(text.address, allow_hosts)
        headers = own_headers.after(text.headers, text.address, before)
        if not secret and before is not None and before.url == text.address:
            secret = before.secret
        if not secret:
            made = secret = webhook.make_secret(random_bytes)
        webhook.check_secret(secret)
    elif secret or text.headers:
        what = "secret" if secret else "headers"
        raise ValueError(f"{what}: only a webhook has one; of others all stands in the address")
    kept = sealing.Endpoint(text.address, secret, "", headers)
    row = Destination(
        name=name,
        kind=kind,
        where=_where(text.address),
        sealed=sealer.seal(f"alerts/{name}", kept),
        changed_at=at,
        changed_by=by,
    )
    return row, made


def opened(row: Destination, sealer: sealing.Sealer) -> sealing.Endpoint:
    """What is kept of a destination. Raises UnknownKey or Damaged."""
    return sealer.open(f"alerts/{row.name}", row.sealed)


def _where(address: str) -> str:
    """The host where it is one, and nothing that is secret: of slack:// and others it is a key."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    is_host = "." in host or host == "localhost"
    return f"{parts.scheme}://{host}" if is_host else f"{parts.scheme}://…"
