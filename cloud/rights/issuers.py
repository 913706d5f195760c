"""Keeps the keys of issuers up to date, from files and from servers that may be slow or lie.

A server is asked each `refresh_s`, and once more where a token names a key that is not known, but
not within AGAIN_S: who makes names up costs it nothing. Its answer must be JSON of at most 256 KB,
whole within FETCH_S, and no redirect. Where it cannot be had the keys stay, for `stale_s`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final

import httpx

from edgewake.cloud.rights import jwks
from edgewake.cloud.rights.config import IssuerConfig
from edgewake.cloud.rights.tokens import Issuer
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.files.changing_file import ChangingFile

log = logging.getLogger("edgewake.rights")

FETCH_S: Final = 5.0
AGAIN_S: Final = 10.0
"""Least time between two questions because of a key that is not known."""

HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}

Fetch = Callable[[str], Awaitable[bytes]]


@lru_cache(1)
def tls() -> ssl.SSLContext:
    """Made once: to read the system's authorities takes some tenths of a second."""
    return ssl.create_default_context()


async def fetch(url: str) -> bytes:
    """What a server answers. Raises ConfigError: it may be wrong for ever, or for a moment."""
    try:
        async with (
            asyncio.timeout(FETCH_S),
            httpx.AsyncClient(verify=tls(), follow_redirects=False, trust_env=False) as client,
            client.stream("GET", url, headers=HEADERS) as answer,
        ):
            if answer.status_code != 200:
                raise ConfigError(f"{url}: answered {answer.status_code}, expected 200")
            found = b""
            async for piece in answer.aiter_raw():
                found += piece
                if len(found) > jwks.SET_BYTES_MAX:
                    raise ConfigError(f"{url}: expected at most {jwks.SET_BYTES_MAX} bytes")
            return found
    except TimeoutError as error:
        raise ConfigError(f"{url}: no answer within {FETCH_S:.0f} s") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"{url}: {type(error).__name__}: {error}") from error


class KeySet:
    """The keys of one issuer. Raises ConfigError where its file cannot be used at first."""

    def __init__(self, config: IssuerConfig, clock: Clock, ask: Fetch = fetch) -> None:
        self._clock, self._ask = clock, ask
        self.issuer = Issuer(config, ())
        self._file = (
            None
            if config.jwks_file is None
            else ChangingFile(
                config.jwks_file,
                jwks.parse,
                what="keys of an issuer",
                log=log,
                event="rights.file",
                key="jwks_file",
            )
        )
        self.thumbprints: frozenset[str] = frozenset()
        """Thumbprints of the keys that it has."""
        if self._file is not None:
            self._take(self._file.value)
        else:
            tls()
        self._asked_s = self._got_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._why = "it was not asked yet"

    @property
    def is_due(self) -> bool:
        """Is its server to be asked?"""
        config = self.issuer.config
        since_s = self._clock.monotonic_s() - self._asked_s
        return config.jwks_url is not None and since_s >= config.refresh_s

    def look(self) -> None:
        """Read its file, or ask its server beside."""
        config = self.issuer.config
        if self._file is not None:
            if self._file.look():
                log.info("%s read again", config.jwks_file, extra={"event": "rights.file"})
            self._take(self._file.value)
            return
        if self.is_due:
            self._begin()
        is_stale = self._clock.monotonic_s() - self._got_s > config.refresh_s + config.stale_s
        if self.issuer.keys and is_stale:
            log.error(
                "keys of %s are too old to be believed: %s",
                config.issuer,
                self._why,
                extra={"event": "rights.issuer"},
            )
            self._take(())

    async def renewed(self, again_s: float = AGAIN_S) -> bool:
        """Ask its server because a key is unknown, if the last question is `again_s` old.

        Returns whether there are new keys.
        """
        before = self.issuer.keys
        if self._file is not None:
            self.look()
            return before != self.issuer.keys
        if self._clock.monotonic_s() - self._asked_s >= again_s or self._asking is not None:
            await asyncio.shield(self._begin())
        if not self.issuer.keys:
            raise Unavailable(f"the keys of the token's issuer are not known: {self._why}")
        return before != self.issuer.keys

    def _begin(self) -> asyncio.Task[None]:
        if self._asking is None:
            self._asked_s = self._clock.monotonic_s()
            self._asking = asyncio.create_task(self._refresh(), name="issuer-keys")
        return self._asking

    async def _refresh(self) -> None:
        url = self.issuer.config.jwks_url
        try:
            self._take(jwks.parse(await self._ask(str(url))))
            self._got_s = self._clock.monotonic_s()
        except ConfigError as error:
            self._why = str(error)
            log.warning(
                "keys of %s: %s",
                self.issuer.config.issuer,
                error,
                extra={"event": "rights.issuer"},
            )
        finally:
            self._asking = None

    def _take(self, keys: tuple[jwks.Key, ...]) -> None:
        if tuple(self.issuer.keys) != keys:
            self.issuer = Issuer(self.issuer.config, keys)
            self.thumbprints = frozenset(key.thumbprint for key in keys)
            log.info(
                "%d keys of %s",
                len(keys),
                self.issuer.config.issuer,
                extra={"event": "rights.issuer"},
            )
