"""The keys that sign cursors, from a file: access servers and push proxies share it."""

from __future__ import annotations

import secrets
from pathlib import Path

from edgewake.protocol.cursor import CursorCodec
from edgewake.protocol.errors import ConfigError


def load_keys(path: Path) -> dict[int, bytes]:
    """Signing keys from lines `kid hexkey`; empty lines and `#` comments are passed over. Raises ConfigError."""
    keys: dict[int, bytes] = {}
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        kid, _, key = line.partition("#")[0].strip().partition(" ")
        if not kid:
            continue
        try:
            keys[int(kid)] = bytes.fromhex(key)
        except ValueError:
            raise ConfigError(f"{path}, line {number}: expected `kid hexkey`, e.g. `1 00ff…`") from None
    return keys


def cursor_codec(path: Path | None) -> CursorCodec:
    """The codec for a key file, or one with a key made up for this process. Raises ConfigError."""
    keys = {0: secrets.token_bytes(32)} if path is None else load_keys(path)
    try:
        return CursorCodec(keys)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
