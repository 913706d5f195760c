"""An alert, posted to a server. Of the answer only its head counts, and no more than that is read.

The connection is made before the alert is called begun. A redirection is not followed: it could
lead to anybody.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from edgewake.edge.actions.action import Act, ActionFailed
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import WebhookActionConfig
from edgewake.edge.sources.address import connected, tls_context
from edgewake.edge.sources.web.http_client import Request, ask, parse_url, port_of
from edgewake.edge.sources.web.web_config import read_token


class WebhookAction:
    """Posts an alert to an address."""

    def __init__(self, config: WebhookActionConfig) -> None:
        self._config = config
        self._url = parse_url(config.url)

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Act]:
        request = self._request()
        tls = tls_context(self._config.ca_file) if self._url.scheme == "https" else None
        async with connected(self._url.hostname or "", port_of(self._url), tls=tls) as (
            reader,
            writer,
        ):

            async def post(alert: Alert) -> None:
                key = ("Idempotency-Key", alert.id)
                got = await ask(
                    replace(request, headers=(*request.headers, key), body=alert.body()),
                    reader,
                    writer,
                )
                if not 200 <= got.status < 300:
                    raise ActionFailed(f"the server answered {got.status}")

            yield post

    def _request(self) -> Request:
        secret = (
            ()
            if self._config.token_file is None
            else (("Authorization", f"Bearer {read_token(self._config.token_file)}"),)
        )
        return Request(self._url, (("Content-Type", "application/json"), ("Accept", "*/*")), secret)
