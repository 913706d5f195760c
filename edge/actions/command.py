"""A program of this machine, run for an alert.

Its words are the configuration's, always the same; what was measured comes on standard input and, a
little of it, in the environment, so no reading can become an argument or a shell's text. It
inherits nothing else of the agent's environment. Where the agent is root it runs as another user,
without groups. Of its output the beginning is kept for the log.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from edgewake.edge.actions.action import Act, ActionFailed
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import CommandActionConfig
from edgewake.edge.program import Program, run
from edgewake.protocol.sketches.sketch import item_text

OUTPUT_BYTES_MAX: Final = 2048
"""Bytes of the output that are kept to say why it failed."""
SAID_CHARS_MAX: Final = 500
"""Characters of their end that are said: there stands why."""
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where programs that it starts are looked for."""


class CommandAction:
    """Starts a program for an alert, with the alert in its environment."""

    def __init__(self, config: CommandActionConfig) -> None:
        self._config = config

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Act]:
        yield self._run

    async def _run(self, alert: Alert) -> None:
        options = {
            "cwd": "/",
            "env": environment(alert),
            "umask": 0o077,
            **_identity(self._config.user),
        }
        ended = await run(Program(self._config.command, OUTPUT_BYTES_MAX, alert.body(), options))
        if ended.code != 0:
            raise ActionFailed(
                f"exit code {ended.code}: "
                f"{ended.output.decode(errors='replace').strip()[-SAID_CHARS_MAX:]}"
            )


def environment(alert: Alert) -> Mapping[str, str]:
    """All that a program finds in its environment."""
    t, fields = alert.reading
    told = {"ID": alert.id, "DEVICE": alert.device, "STREAM": alert.stream, "T": str(t)}
    of_alert = {name: fields.get(name) for name in ("rule", "active", "since_ms")}
    told |= {
        name.upper(): item_text(value) for name, value in of_alert.items() if value is not None
    }
    return {"PATH": PATH, "LANG": "C.UTF-8"} | {
        f"EDGEWAKE_{name}": value.replace("\0", "") for name, value in told.items()
    }


def _identity(user: str) -> dict[str, Any]:
    """The user that runs it. Raises ActionFailed for an unknown user."""
    if os.geteuid() != 0:
        return {}
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ActionFailed(f"user {user!r} is not known on this machine") from None
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
