"""The keys that sign cursors, from a file that all access servers and push proxies share.

It is read again whenever it changes.

    # kid hexkey [sign | verify]
    1 6f1c… verify
    2 a07e… sign

One key signs, all verify; a key that is alone signs without being told to. To rotate, on all
servers: add the new key as `verify`, then swap `sign` and `verify`, and after the retention of the
streams remove the old one. Whichever two servers are a step apart, each reads what the other wrote,
and none is restarted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import CursorCodec, CursorKeys
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.changing_file import ChangingFile

log = logging.getLogger("edgewake.log")

LOOK_S: Final = 1.0
"""Between two looks whether the file changed."""
_EXPECTED: Final = (
    "expected `kid hexkey`, e.g. `1 00ff…`, with `sign` or `verify` after it where there are "
    "several"
)


def parse_keys(text: str) -> CursorKeys:
    """The keys of a file; empty lines and `#` comments are passed over. Raises ConfigError."""
    found: dict[int, bytes] = {}
    uses: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            kid, key, use = (
                int(words[0]),
                bytes.fromhex(words[1]),
                words[2] if len(words) == 3 else "",
            )
        except (ValueError, IndexError):
            raise ConfigError(f"line {number}: {_EXPECTED}") from None
        if len(words) > 3 or use not in ("", "sign", "verify") or kid in found:
            raise ConfigError(f"line {number}: {_EXPECTED}, and each kid once")
        found[kid] = key
        uses[kid] = use
    signing = [kid for kid, use in uses.items() if use == "sign" or (not use and len(uses) == 1)]
    if len(signing) != 1:
        raise ConfigError(
            f"{len(signing)} keys are marked `sign`: expected one, and all others `verify`"
        )
    try:
        return CursorKeys(found, signing[0])
    except ValueError as error:
        raise ConfigError(str(error)) from error


class KeyFile:
    """A codec whose keys follow a file; one task runs `run`.

    Raises ConfigError where the file cannot be used at the start.
    """

    def __init__(self, path: Path) -> None:
        self._file = ChangingFile(
            path, parse_keys, what="cursor keys", log=log, event="cursor_keys.refused"
        )
        self.codec = CursorCodec(self._file.value)

    async def run(self, clock: Clock) -> None:
        """Read the file again when it changed, until cancelled."""
        while True:
            await clock.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Read the file again if it changed."""
        if self._file.look():
            self.codec.keys = self._file.value
            log.info(
                "cursor keys changed; key %d signs",
                self.codec.keys.signing,
                extra={"event": "cursor_keys.changed"},
            )


def state_key_file() -> Path:
    """The file used where none is configured.

    It is made once in this user's state folder, so that a restart continues every cursor.

    $STATE_DIRECTORY (systemd's), else $XDG_STATE_HOME/edgewake, else ~/.local/state/edgewake. Where
    that cannot be written, a key is made for this process alone; after a restart clients then get a
    gap `unverifiable` and go on by their policy.
    """
    try:
        return _ensure(_state_folder() / "cursor.key")
    except (OSError, RuntimeError) as error:  # the latter: this user has no home
        log.warning(
            "cursors are good for this process only: %s",
            error,
            extra={"event": "cursor_keys.not_kept"},
        )
        return _ensure(Path(tempfile.mkdtemp(prefix="edgewake-")) / "cursor.key")


def _state_folder() -> Path:
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "edgewake"


def _ensure(path: Path) -> Path:
    """Make the file with a new key unless it is there.

    Two processes that start at once get the same: a link replaces nothing.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".cursor.key-"
    ) as new:  # mode 0600
        new.write(f"1 {secrets.token_hex(32)}\n")
        new.flush()
        os.fsync(new.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new.name, path)
    return path
