"""The configuration of the login of people: the table `[login]` of access, push and operations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from edgewake.cloud.rights.config import checked_url
from edgewake.protocol.config import Config


def _checked_base(text: str) -> str:
    return checked_url(text).rstrip("/")


class LoginConfig(Config):
    """Where people log in: at an identity provider that speaks OpenID Connect."""

    issuer: Annotated[str, AfterValidator(checked_url)]
    """The provider, as its description (/.well-known/openid-configuration) names it."""
    client_id: str = Field(min_length=1, max_length=200)
    """What the provider calls this installation; the same on all its servers."""
    client_secret_file: Path | None = None
    """The secret that the provider gave with it. Without one, PKCE alone protects the login."""
    url: Annotated[str, AfterValidator(_checked_base)]
    """How browsers reach this server, e.g. "https://readings.example.org". The provider must know
    URL/login/callback as an address to come back to, and URL/ as one after the log-out."""
    session_key_file: Path
    """Keys that sessions are encrypted with in people's cookies: 64 hex digits a line, the same on
    all servers, read again when it changes. The first encrypts, all decrypt."""
    scopes: tuple[str, ...] = ("openid", "profile")
    """What is asked for; with `offline_access` many providers give what renews a session."""
    groups_claim: str = "groups"
    """The claim that lists a person's groups (or names one)."""
    groups: dict[str, str] = Field(default={})
    """Group → role: of `[rights.roles]`; for operations `read` or `operate`. The group `*` is
    everybody who can log in. What several groups give adds up."""
    claims: tuple[str, ...] = Field(default=(), max_length=20)
    """Claims that roles need, e.g. ["device"]; the same on all servers."""
    renew_s: float = Field(default=600, ge=2, le=86_400)
    """Seconds after which the provider is asked again whether a session still holds: what it takes
    back ends within them."""
    life_s: float = Field(default=43_200, ge=10, le=30 * 86_400)
    """Seconds after which a person logs in again, whatever the provider says."""
    stale_s: float = Field(default=900, ge=0, le=86_400)
    """Seconds for which sessions go on that the provider cannot be asked about, because it is
    away."""
