"""A person's session: what the provider said of it, and until when that holds. Pure.

It is kept nowhere but in the person's browser, encrypted (box.py), so that every server that has
the keys knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.failures import Unusable

NAME_CHARS_MAX: Final = 100
GROUPS_MAX: Final = 200
"""Groups of one person that are looked at."""
EVERYBODY: Final = "*"
"""The group of all who can log in."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a cookie says of a person who logged in. Times are ms since 1970 UTC."""

    id: str
    subject: str
    """As the provider names the person, for ever."""
    name: str
    """As people call it."""
    groups: tuple[str, ...]
    claims: Mapping[str, Any]
    """Those that the configuration names."""
    until: int
    """Then it is over."""
    fresh_until: int
    """Then the provider is asked again."""
    checked_at: int
    """When the provider last said that it holds."""
    refresh: str = ""
    """What renews it; empty where the provider gave nothing."""


def begun(
    config: LoginConfig,
    claims: Mapping[str, Any],
    *,
    session_id: str,
    refresh: str,
    token_until: int,
    now: int,
) -> Session:
    """A new session. `token_until`: when the provider's own word expires. Raises Unusable."""
    until = now + round(config.life_s * 1000)
    if not refresh:
        until = min(until, token_until)
    return Session(
        id=session_id,
        subject=_text(claims, "sub"),
        name=_name(claims),
        groups=_groups(claims.get(config.groups_claim)),
        claims={name: claims[name] for name in config.claims if name in claims},
        until=until,
        fresh_until=min(until, now + round(config.renew_s * 1000)),
        checked_at=now,
        refresh=refresh,
    )


def renewed(
    config: LoginConfig, session: Session, claims: Mapping[str, Any], *, refresh: str, now: int
) -> Session:
    """The session with what the provider says of it now. Raises Unusable."""
    if _text(claims, "sub") != session.subject:
        raise Unusable("sub: it is another person's")
    return replace(
        session,
        name=_name(claims),
        groups=_groups(claims.get(config.groups_claim)),
        claims={name: claims[name] for name in config.claims if name in claims},
        fresh_until=min(session.until, now + round(config.renew_s * 1000)),
        checked_at=now,
        refresh=refresh or session.refresh,
    )


def text_of(session: Session) -> bytes:
    """As it is encrypted."""
    return orjson.dumps(asdict(session))


def parse(text: bytes) -> Session:
    """What `text_of` wrote. Raises ValueError, TypeError."""
    found = orjson.loads(text)
    return Session(**found | {"groups": tuple(found["groups"])})


def roles_of(config: LoginConfig, groups: Iterable[str]) -> tuple[str, ...]:
    """The roles that these groups give, each once, in the configuration's order."""
    held = {EVERYBODY, *groups}
    return tuple(dict.fromkeys(role for group, role in config.groups.items() if group in held))


def _text(claims: Mapping[str, Any], name: str) -> str:
    found = claims.get(name)
    if not isinstance(found, str) or not found or len(found) > 255:
        raise Unusable(f"{name}: expected a text of 1 to 255 characters")
    return found


def _name(claims: Mapping[str, Any]) -> str:
    for key in ("name", "preferred_username", "email", "sub"):
        found = claims.get(key)
        if isinstance(found, str) and found.strip():
            return " ".join(found.split())[:NAME_CHARS_MAX]
    return ""


def _groups(found: object) -> tuple[str, ...]:
    if found is None:
        return ()
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Unusable("groups: expected a list of texts")
    if len(found) > GROUPS_MAX:
        raise Unusable(f"groups: {len(found)} of them: expected at most {GROUPS_MAX}")
    return tuple(found)
