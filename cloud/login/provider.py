"""Asks the identity provider: where to log in, what a code is worth, whether a session still holds.

Each answer must be JSON of at most ANSWER_BYTES_MAX, whole within ASK_S, and no redirect. What it
refuses is `Refused`; what cannot be had now is `Unavailable`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import httpx
import orjson
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from edgewake.cloud.login import description, id_token
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.description import Description
from edgewake.cloud.login.failures import ProviderRefuses, Unusable, WrongProvider
from edgewake.cloud.login.id_token import Word
from edgewake.cloud.rights.config import IssuerConfig
from edgewake.cloud.rights.issuers import KeySet, fetch, tls
from edgewake.cloud.rights.tokens import UnknownKey
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, Unavailable

log = logging.getLogger("edgewake.login")

ASK_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 256 * 1024
AGAIN_S: Final = 2.0
"""Seconds after which a provider is asked again for its description that did not give one: who
opens login pages in a loop costs it nothing more."""
KEYS_AGAIN_S: Final = 0.5
"""The wait before its keys are read again, for a token that names an unknown one."""
DESCRIBED_S: Final = 3600.0
"""Seconds for which the provider's description of itself is believed."""
CALLBACK: Final = "/login/callback"
HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


class Given:
    """What a token endpoint gave."""

    def __init__(self, word: Word, refresh: str) -> None:
        self.word, self.refresh = word, refresh


class Provider:
    """Asks one identity provider. Raises ConfigError where its secret cannot be read."""

    def __init__(self, config: LoginConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._secret = _secret(config)
        tls()
        self._description: Description | None = None
        self._keys: KeySet | None = None
        self._described_s = 0.0
        self._failed: tuple[float, Unavailable | WrongProvider] | None = None
        self._describing = asyncio.Lock()

    @property
    def redirect(self) -> str:
        """Where the provider sends people back to."""
        return self._config.url + CALLBACK

    async def address(self, *, state: str, nonce: str, verifier: str, prompt: str | None) -> str:
        """Where a person logs in. Raises Unavailable, WrongProvider."""
        found = await self._describe()
        asked = {
            "redirect_uri": self.redirect,
            "scope": " ".join(self._config.scopes),
            "nonce": nonce,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        prompts = [] if prompt is None else [prompt]
        if "offline_access" in self._config.scopes:
            prompts.append("consent")  # OpenID Connect Core, 11: without it the scope is ignored
        if prompts:
            asked["prompt"] = " ".join(prompts)
        address: str = prepare_grant_uri(
            found.authorize, self._config.client_id, "code", state=state, **asked
        )
        return address

    async def is_own(self, issuer: str | None) -> bool:
        """Does the answer that a browser brings come from this provider (RFC 9207)?"""
        found = await self._describe()
        return issuer == self._config.issuer or (issuer is None and not found.names_itself)

    async def exchange(self, *, code: str, nonce: str, verifier: str) -> Given:
        """What a code is worth. Raises ProviderRefuses, Unusable, Unavailable, WrongProvider."""
        body = prepare_token_request(
            "authorization_code", redirect_uri=self.redirect, code=code, code_verifier=verifier
        )
        answer = await self._ask_for_tokens(body)
        if not answer.get("id_token"):
            raise Unusable("id_token: missing; is `openid` among the scopes?")
        word = await self._word(answer, nonce)
        return Given(word, str(answer.get("refresh_token") or ""))

    async def renew(self, refresh: str, subject: str) -> Given:
        """What is said of a person now. Raises as `exchange` does."""
        answer = await self._ask_for_tokens(
            prepare_token_request("refresh_token", refresh_token=refresh)
        )
        if answer.get("id_token"):
            word = await self._word(answer, None)
        else:
            word = Word(await self._person(answer, {"sub": subject}), 0)
        return Given(word, str(answer.get("refresh_token") or ""))

    async def end(self, refresh: str) -> None:
        """Have the provider forget what renews a session.

        Raises Unavailable, WrongProvider, ProviderRefuses.
        """
        found = await self._describe()
        if found.revoke and refresh:
            await self._post(found.revoke, urlencode({"token": refresh}))

    async def log_out(self) -> str:
        """Where a person logs out at the provider; empty where it has no such page.

        Raises Unavailable, WrongProvider.
        """
        found = await self._describe()
        back = {"client_id": self._config.client_id, "post_logout_redirect_uri": self._config.url}
        back["post_logout_redirect_uri"] += "/"
        mark = "&" if "?" in found.log_out else "?"
        return found.log_out and f"{found.log_out}{mark}{urlencode(back)}"

    async def _describe(self) -> Description:
        """The provider's description of itself: asked for by one, whoever waits for it meanwhile.

        Raises Unavailable, and WrongProvider.
        """
        async with self._describing:
            return await self._described()

    async def _described(self) -> Description:
        now_s = self._clock.monotonic_s()
        if self._description is not None and now_s - self._described_s < DESCRIBED_S:
            return self._description
        if self._failed is not None and now_s - self._failed[0] < AGAIN_S:
            raise self._failed[1]
        try:
            body = await fetch(self._config.issuer.rstrip("/") + description.PATH)
            found = description.parse(body, self._config.issuer)
        except (ConfigError, WrongProvider) as error:
            log.warning(
                "%s: its description: %s",
                self._config.issuer,
                error,
                extra={"event": "login.described"},
            )
            if self._description is not None:
                # It is believed a little longer: else each caller that waits here asks once more.
                self._described_s = self._clock.monotonic_s() - DESCRIBED_S + AGAIN_S
                return self._description
            why = (
                error
                if isinstance(error, WrongProvider)
                else Unavailable(f"the login server does not answer as it should: {error}")
            )
            self._failed = (self._clock.monotonic_s(), why)
            raise why from (None if why is error else error)
        if self._keys is None or found != self._description:
            self._keys = KeySet(
                IssuerConfig(
                    issuer=self._config.issuer,
                    audience=self._config.client_id,
                    jwks_url=found.keys,
                    algorithms=("RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA"),
                ),
                self._clock,
            )
        self._description, self._described_s = found, now_s
        return found

    async def _word(self, answer: Mapping[str, Any], nonce: str | None) -> Word:
        await self._describe()
        keys = self._keys
        assert keys is not None  # made with the description
        text, access_token = str(answer["id_token"]), _access_token(answer)
        if keys.is_due:
            await keys.renewed()
        now_s = self._clock.now_ms() / 1000

        def checked() -> Word:
            return id_token.check(
                text, keys.issuer, nonce=nonce, access_token=access_token, now_s=now_s
            )

        try:
            word = checked()
        except UnknownKey:
            await keys.renewed(KEYS_AGAIN_S)
            try:
                word = checked()
            except UnknownKey as error:
                raise Unusable(f"ID {error}") from error
        return Word(await self._person(answer, word.claims), word.until)

    async def _person(
        self, answer: Mapping[str, Any], claims: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Claims, with those that the provider tells at its userinfo endpoint alone."""
        wanted = {self._config.groups_claim, *self._config.claims}
        found = await self._describe()
        if wanted <= claims.keys() or not found.userinfo:
            return claims
        access_token = _access_token(answer)
        if not access_token:
            raise Unusable("access_token: missing, and userinfo is not told without one")
        said = await self._get(found.userinfo, access_token)
        if said.get("sub") != claims.get("sub"):
            raise Unusable("userinfo: sub: it is another person's")
        return {**said, **claims}

    async def _ask_for_tokens(self, body: str) -> Mapping[str, Any]:
        found = await self._describe()
        return await self._post(found.token, body)

    async def _post(self, url: str, body: str) -> Mapping[str, Any]:
        # RFC 6749, 2.3.1: both are encoded as in a form before they become Basic.
        method = "none" if self._secret is None else "client_secret_basic"
        names = [quote(text, safe="") for text in (self._config.client_id, self._secret or "")]
        if self._secret is None:
            names[0] = self._config.client_id
        headers = {"Content-Type": "application/x-www-form-urlencoded", **HEADERS}
        _, headers, body = ClientAuth(*names, method).prepare("POST", url, headers, body)
        return await self._answer("POST", url, headers, dict(parse_qsl(body)))

    async def _get(self, url: str, access_token: str) -> Mapping[str, Any]:
        return await self._answer(
            "GET", url, {"Authorization": f"Bearer {access_token}", **HEADERS}, None
        )

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> Mapping[str, Any]:
        try:
            async with (
                asyncio.timeout(ASK_S),
                httpx.AsyncClient(verify=tls(), follow_redirects=False, trust_env=False) as client,
                client.stream(method, url, headers=headers, data=form) as answer,
            ):
                body = b""
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        raise Unavailable(f"{url}: answers more than {ANSWER_BYTES_MAX} bytes")
        except TimeoutError as error:
            raise Unavailable(f"{url}: no answer within {ASK_S:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{url}: {type(error).__name__}: {error}") from error
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Unavailable(f"{url}: answers {answer.status_code}")
        return _read(url, answer.status_code, body)


def _access_token(answer: Mapping[str, Any]) -> str:
    """Empty where there is none, or null."""
    return str(answer.get("access_token") or "")


def _read(url: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body) if body else {}
    except ValueError:
        found = None
    is_object = isinstance(found, dict)
    if status != 200:
        said = found if isinstance(found, dict) else {}
        words = [str(said[key])[:200] for key in ("error", "error_description") if said.get(key)]
        raise ProviderRefuses(": ".join(words) or f"{url} answers {status}")
    if not is_object or found is None:
        raise Unavailable(f"{url}: expected a JSON object")
    return found


def _secret(config: LoginConfig) -> str | None:
    if config.client_secret_file is None:
        return None
    try:
        text = config.client_secret_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"client_secret_file = {str(config.client_secret_file)!r}: {error}"
        ) from error
    if not text:
        raise ConfigError(f"client_secret_file = {str(config.client_secret_file)!r}: it is empty")
    return text
