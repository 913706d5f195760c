"""The guardian: a shell that waits for us to die and then kills our process groups.

That includes grandchildren.

It learns of each group from a line on its standard input, +PGID or -PGID, and acts at the end of
that input, which comes when we end in any way. It costs one small shell; prctl(PR_SET_PDEATHSIG),
which children have as well, reaches only the direct child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from typing import Final

_SCRIPT: Final = """
trap '' HUP INT TERM
groups=' '
while read -r line; do
  id=${line#?}
  case $line in
    +*) groups="$groups$id ";;
    -*) groups="${groups%% $id *} ${groups#* $id }";;
  esac
done
for id in $groups; do kill -s KILL -- "-$id"; done
"""
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For `preexec_fn`: SIGKILL when the thread that started this process ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Guardian:
    """Remembers process groups beyond our own death."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """Kill this process group when we die."""
        self._groups.add(group)
        self._send(f"+{group}")

    def forget(self, group: int) -> None:
        """It has ended; a second call does nothing."""
        if group in self._groups:
            self._groups.remove(group)
            self._send(f"-{group}")

    def _send(self, line: str) -> None:
        self._shell = self._shell or _start_shell()
        assert self._shell.stdin is not None
        try:
            os.write(self._shell.stdin.fileno(), f"{line}\n".encode())
        except BrokenPipeError:
            # Somebody killed the shell: the parts run on, and prctl still covers them.
            return

    def close(self) -> None:
        """End the shell; it kills what was not forgotten."""
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
            self._shell.wait()


def _start_shell() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
