"""Fetches names for the shell's completion from a running system, quickly or not at all."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable
from typing import Any, Final

ASK_S: Final = 1.0
"""Seconds to wait for an answer: somebody is at the keyboard."""
BYTES_MAX: Final = 4 << 20
ASKED_MAX: Final = 500
"""The most entries of a list that are fetched; of a longer list some names are not completed."""
NAMES_MAX: Final = 200
"""The most names that are shown; more than a screen does not help."""


def ask(url: str, key: str = "") -> Any:
    """Fetch the JSON at an address. Raises OSError or ValueError."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: expected http:// or https://")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 its scheme was looked at
    # No proxy: it is asked on this machine or where the user said.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ASK_S) as response:
        return json.loads(response.read(BYTES_MAX))


def beginning_with(names: Iterable[object], incomplete: str) -> list[str]:
    """The names that complete the word, in order."""
    found = sorted(
        {name for name in names if isinstance(name, str) and name.startswith(incomplete)}
    )
    return found[:NAMES_MAX]
