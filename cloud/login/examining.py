"""Tries the table `[login]` of configurations before a person does: `edgewake doctor --config`.

    python -m edgewake.cloud.login.examining FILE…

It prints a JSON list of {check, verdict, detail}: verdict is good, warning or bad. Of each file
with such a table it reads what lies on this machine (secret, keys, roles of groups), and asks the
provider what a login asks: its description, its keys, whether it knows this client with its
address to come back to, and whether it takes the client's secret. Nobody is logged in by it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import stat
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
from pydantic import ValidationError

from edgewake.cloud.login import box, description
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.failures import ProviderRefuses, Unusable, WrongProvider
from edgewake.cloud.login.provider import ASK_S, Provider
from edgewake.cloud.login.reader import readers
from edgewake.cloud.rights import jwks
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.issuers import fetch, tls
from edgewake.protocol import config as configuration
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import ConfigError, EdgewakeError, Unavailable

OPERATORS: Final = frozenset({"read", "operate"})
NO_CODE: Final = "edgewake-doctor-has-no-code"
WORDS_MAX: Final = 200
"""Characters of a provider's own words that are told."""


class Advice(EdgewakeError):
    """It works, and something is worth a look."""


Finding = dict[str, str]
Check = Callable[[], Awaitable[str]]


async def examine(path: Path) -> list[Finding]:
    """All that is found of one file; nothing where it has no table `[login]`."""
    try:
        values = configuration.read(path)
        if "login" not in values:
            return []
        login = LoginConfig.model_validate(values["login"])
    except ConfigError as error:
        return [_finding(path, "configuration", "bad", str(error))]
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()
        )
        return [_finding(path, "configuration", "bad", f"[login] {told}")]
    checks: dict[str, Check] = {
        "session key": lambda: _session_key(login),
        "groups": lambda: _groups(values, login),
        "client secret": lambda: _secret_file(login),
        "provider": lambda: _described(login),
        "provider's keys": lambda: _keys(login),
        "address to come back to": lambda: _come_back(login),
        "client": lambda: _client(login),
    }
    return [await _examined(path, name, check) for name, check in checks.items()]


async def _examined(path: Path, name: str, check: Check) -> Finding:
    try:
        return _finding(path, name, "good", await check())
    except Advice as advice:
        return _finding(path, name, "warning", str(advice))
    except (EdgewakeError, WrongProvider, ProviderRefuses, Unusable) as error:
        return _finding(path, name, "bad", str(error))


def _finding(path: Path, name: str, verdict: str, detail: str) -> Finding:
    return {"check": f"login of {path.name}: {name}", "verdict": verdict, "detail": detail}


async def _session_key(login: LoginConfig) -> str:
    box.parse_keys(_text(login.session_key_file, "session_key_file"))
    _is_closed(login.session_key_file)
    return f"{login.session_key_file} can be used; it must be the same on all servers"


async def _secret_file(login: LoginConfig) -> str:
    if login.client_secret_file is None:
        return "none: PKCE alone protects the login"
    Provider(login, SystemClock())  # it reads it
    _is_closed(login.client_secret_file)
    return f"{login.client_secret_file} can be read"


def _text(path: Path, key: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key} = {str(path)!r}: {error}") from error


def _is_closed(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Advice(f"{path}: others may read it (mode {mode:04o}); chmod 600 it")


async def _groups(values: dict[str, Any], login: LoginConfig) -> str:
    if not login.groups:
        raise Advice("[login.groups] is empty: whoever logs in has no right")
    if "rights" in values:
        try:
            rights = RightsConfig.model_validate(values["rights"])
        except ValidationError as error:
            raise ConfigError(f"[rights]: {error.errors()[0]['msg']}") from error
        is_of_operations = "key_file" in values  # which has roles of its own beside them
        ours = OPERATORS if is_of_operations else frozenset[str]()
        named = {group: role for group, role in login.groups.items() if role not in ours}
        readers(login.model_copy(update={"groups": named}), rights)
    elif unknown := sorted(set(login.groups.values()) - OPERATORS):
        raise ConfigError(
            f"login.groups: role {unknown[0]!r}: expected read or operate, or a table [rights] "
            "that has it"
        )
    return f"{len(login.groups)} groups have a role: {', '.join(sorted(login.groups))}"


async def _described(login: LoginConfig) -> str:
    found = await _description(login)
    if not found.log_out:
        raise Advice(f"{login.issuer} has no page to log out at: people stay logged in there")
    return f"{login.issuer} describes itself"


async def _description(login: LoginConfig) -> description.Description:
    body = await fetch(login.issuer.rstrip("/") + description.PATH)
    return description.parse(body, login.issuer)


async def _keys(login: LoginConfig) -> str:
    found = await _description(login)
    keys = jwks.parse(await fetch(found.keys))
    return f"{len(keys)} at {found.keys}"


async def _come_back(login: LoginConfig) -> str:
    """Begin a login, as a browser would, and look at where the provider leads."""
    provider = Provider(login, SystemClock())
    state = secrets.token_urlsafe(24)
    address = await provider.address(
        state=state, nonce=state, verifier=secrets.token_urlsafe(48), prompt=None
    )
    try:
        async with httpx.AsyncClient(
            verify=tls(), follow_redirects=False, trust_env=False, timeout=ASK_S
        ) as client:
            answer = await client.get(address)
    except httpx.HTTPError as error:
        raise Unavailable(f"{urlsplit(address).netloc}: {type(error).__name__}: {error}") from error
    if answer.status_code >= 400:
        raise ConfigError(
            f"the provider answers {answer.status_code} to client_id = {login.client_id!r} that "
            f"wants to come back to {provider.redirect}: is this client there, with this address?"
        )
    back = answer.headers.get("location", "")
    if back.startswith(provider.redirect):
        said = parse_qs(urlsplit(back).query)
        words = ": ".join(said.get(key, [""])[0] for key in ("error", "error_description"))
        raise ConfigError(f"the provider refuses the login: {words[:WORDS_MAX]}")
    return f"the provider leads to its login, and back to {provider.redirect}"


async def _client(login: LoginConfig) -> str:
    """Ask for tokens by a code that there is not: an unknown client is refused otherwise."""
    provider = Provider(login, SystemClock())
    try:
        await provider.exchange(
            code=NO_CODE, nonce=secrets.token_urlsafe(24), verifier=secrets.token_urlsafe(48)
        )
    except ProviderRefuses as refusal:
        words = str(refusal)[:WORDS_MAX]
        if words.startswith("invalid_grant"):
            return "the provider takes this client and how it proves itself"
        raise ConfigError(
            f"the provider refuses this client: {words}. Are client_id and client_secret_file its "
            "own, and may it use client_secret_basic?"
        ) from refusal
    raise ConfigError("the provider gives tokens for a code that it never gave: do not use it")


async def _all(paths: Sequence[Path]) -> list[Finding]:
    return [finding for path in paths for finding in await examine(path)]


def main(words: Sequence[str]) -> None:
    """Print what is found of these files."""
    sys.stdout.write(json.dumps(asyncio.run(_all([Path(word) for word in words]))))


if __name__ == "__main__":
    main(sys.argv[1:])
