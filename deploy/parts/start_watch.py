"""Decides whether a part that is starting makes progress.

Reads no clock and no process; `processor_s` beside it reads the one figure.

A busy machine makes every start slow, so the time that a start takes says nothing of it. What hangs
is a start that did nothing for a while: no output, no sign of life and next to no work of the
processor; or one that worked for very long without a word.
"""

from __future__ import annotations

from typing import Final

import psutil

WINDOW_S: Final = 10.0
"""Seconds over which work of the processor is looked at: of a start that gets a tenth of one it is
half a second and more."""
WORK_SHARE: Final = 0.02
"""Share of one processor from which on it counts as work; a Java that waits for nothing uses some
thousandths."""
SILENT_WORK_S: Final = 900.0
"""Seconds of work without a line of output or a sign of life. The first start of Spark takes some
40, a log of 100 GB that is mended less than 600; a loop without an end would go on for ever."""


class StartWatch:
    """One start, from its first look on."""

    def __init__(self, stalled_s: float, now_s: float) -> None:
        self._stalled_s = stalled_s
        self._looked_s = now_s
        self._progress_s = now_s
        self._words = 0
        self._silent_from_s = 0.0
        """What it had worked when it last said something."""
        self._window_s = now_s
        self._window_work_s = 0.0

    def look(self, now_s: float, *, words: int, work_s: float) -> str:
        """Why it hangs, or "".

        `words`: lines of output and signs of life so far; `work_s`: seconds of processor so far.
        """
        if now_s - self._looked_s > WINDOW_S:
            # We were stopped ourselves: a machine that slept, a debugger.
            self._begin(now_s, work_s)
        self._looked_s = now_s
        if words != self._words:
            self._words, self._silent_from_s = words, work_s
            self._progress_s = now_s
        if now_s - self._window_s >= WINDOW_S:
            worked = work_s - self._window_work_s
            if worked >= WORK_SHARE * (now_s - self._window_s):
                self._progress_s = now_s
            self._window_s, self._window_work_s = now_s, work_s
        if now_s - self._progress_s > self._stalled_s:
            return f"not ready, and nothing done for {now_s - self._progress_s:.0f} s"
        if work_s - self._silent_from_s > SILENT_WORK_S:
            return f"not ready, and no word in {SILENT_WORK_S:.0f} s of work"
        return ""

    def _begin(self, now_s: float, work_s: float) -> None:
        self._progress_s = self._window_s = now_s
        self._window_work_s = work_s


def processor_s(pid: int) -> float:
    """Seconds of processor time of a process and its descendants, ended ones too; 0 if gone."""
    used = 0.0
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    for process in family:
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used
