"""A second chance for tests that share two processors with five processes of others.

Such a test may find a service, or a thread of its own, slower than anybody expected. Once the
processes of a run have ended, each one that failed is run once more with the machine to itself. The
end of the run says which tests needed that and what they said at first, for each of them is a
finding for whoever reads it. Where tests of more than FORGIVEN_MAX files fail, those are no
hiccups, and none is run again. Who runs tests in one process has none of this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

FORGIVEN_MAX: Final = 8
"""Files of one run of which tests may fail beside others. What a file's tests share fails all of
them at once, which is one hiccup."""
_ALONE: Final = "EDGEWAKE_TESTS_ALONE"
"""Set for the run of what failed: it has no second chance of its own."""


def _failed(terminal: pytest.TerminalReporter) -> dict[str, pytest.TestReport]:
    """Name of each test that failed → the first of its reports that says so."""
    found: dict[str, pytest.TestReport] = {}
    for category in ("failed", "error"):
        for report in terminal.stats.get(category, ()):
            found.setdefault(report.nodeid, report)
    return found


def _may_be_forgiven(session: pytest.Session, failed: dict[str, pytest.TestReport]) -> bool:
    return (
        session.exitstatus == pytest.ExitCode.TESTS_FAILED
        and session.config.getoption("numprocesses", None) is not None
        and _ALONE not in os.environ
        and 0 < len({name.split("::")[0] for name in failed}) <= FORGIVEN_MAX
        and all(isinstance(one, pytest.TestReport) for one in failed.values())
    )


class SecondChance:
    """The plugin."""

    def __init__(self) -> None:
        self._forgiven: dict[str, pytest.TestReport] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Run what failed once more; the run passes where all of it does."""
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if not isinstance(terminal, pytest.TerminalReporter):
            return  # a process that has no terminal, only tests
        failed = _failed(terminal)
        if not _may_be_forgiven(session, failed):
            return
        terminal.write_line(f"\n{len(failed)} failed beside others; once more alone:")
        terminal.flush()
        command = [sys.executable, "-m", "pytest", "-v", "-n", "0", "--rootdir"]
        again = subprocess.run(
            [*command, str(session.config.rootpath), *failed],
            cwd=session.config.invocation_params.dir,
            env=os.environ | {_ALONE: "1"},
            check=False,
        )
        if again.returncode == pytest.ExitCode.OK:
            self._forgiven = failed
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Which tests failed beside others, and what they said."""
        if not self._forgiven:
            return
        count = len(self._forgiven)
        terminalreporter.section(f"{count} failed beside others and passed alone")
        for name, report in self._forgiven.items():
            terminalreporter.write_line(f"{name}\n{report.longreprtext[-3000:]}\n")
