"""Checks pushed settings in a process of its own.

It runs `python -m edgewake.edge.settings.settings_check`. Checking takes pydantic, a third of an
agent's memory, which the running agent would keep until its next life (`edgewake.edge.life`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from edgewake.protocol.downlink.downlink import OUTPUT_CHARS_MAX
from edgewake.protocol.errors import ConfigError

CHECK_S: Final = 60.0
"""Seconds for it: a second on a Raspberry Pi, and more where a disk is slow or memory scarce."""
OUTPUT_BYTES_MAX: Final = 4 * OUTPUT_CHARS_MAX
"""Bytes of what is wrong with them; an answer has no room for more."""
_WRONG: Final = 3
"""Exit code for settings that cannot be used; 1 is Python's own."""


async def fault_in(own: Mapping[str, Any], text: str, where: str) -> str | None:
    """What is wrong with settings for a device with these own values; None: they can be used."""
    import pickle

    from edgewake.edge.program import Program, run

    argv = [sys.executable, "-P", "-m", "edgewake.edge.settings.settings_check"]
    try:
        ended = await run(
            Program(argv, OUTPUT_BYTES_MAX, stdin=pickle.dumps((own, text, where))),
            timeout_s=CHECK_S,
        )
    except OSError as error:
        return f"{where}: cannot be checked now: {error}"
    if ended.code == 0:
        return None
    said = ended.output.decode("utf-8", "replace")
    return (
        said
        if ended.code == _WRONG
        else f"{where}: cannot be checked now: {_how(ended.code)} {said[-200:]}".strip()
    )


def _how(code: int | None) -> str:
    return f"killed after {CHECK_S:g} s" if code is None else f"exit code {code}"


def main() -> None:
    """In that process. What it reads was written by the agent that started it."""
    import pickle

    from edgewake.edge.settings.settings import merged

    own, text, where = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        merged(own, text, where)
    except ConfigError as error:
        sys.stdout.write(str(error))
        sys.exit(_WRONG)


if __name__ == "__main__":
    main()
