"""The link that `edgewake up` prints: opened once, it logs a browser in at the operations API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.installation import key_of

TIMEOUT_S: Final = 5.0


def make(url: str, key_file: Path) -> str:
    """A fresh link; where the API gives none, its login page."""
    try:
        headers = {"Authorization": f"Bearer {key_of(key_file)}"}
        request = urllib.request.Request(f"{url}/v1/tickets", method="POST", headers=headers)  # noqa: S310  (our own address)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return url + str(json.load(answer)["path"])
    except (OSError, ValueError, KeyError, ConfigError):
        return f"{url}/in"
