"""A second chance for tests of real services that share two processors with five others.

Such a test may find a service slower than anybody expected. It is run once more, and the end of
the run says which tests needed that and what they said at first, for each of them is a finding
for whoever reads it. More than FORGIVEN_MAX are no hiccups, and the run fails. Who runs tests one
by one has none of this, and neither do tests that start no service.
"""

from __future__ import annotations

from typing import Final

import pytest

FORGIVEN_MAX: Final = 5
"""Tests of one run that may fail once."""


def give(item: pytest.Item) -> None:
    """Let pytest-rerunfailures run it once more, where it runs beside others."""
    if hasattr(item.config, "workerinput"):
        item.add_marker(pytest.mark.flaky(reruns=1))


def _forgiven(terminal: pytest.TerminalReporter) -> list[pytest.TestReport]:
    failed = {report.nodeid for report in terminal.stats.get("failed", ())}
    first = {report.nodeid: report for report in terminal.stats.get("rerun", ())}
    return [report for name, report in first.items() if name not in failed]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """More of them than are forgiven fail the run."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(terminal, pytest.TerminalReporter):
        return  # a process that has no terminal, only tests
    if exitstatus == pytest.ExitCode.OK and len(_forgiven(terminal)) > FORGIVEN_MAX:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which tests failed once, and what they said."""
    forgiven = _forgiven(terminalreporter)
    if not forgiven:
        return
    terminalreporter.section(f"{len(forgiven)} failed once and passed then, {FORGIVEN_MAX} may")
    for report in forgiven:
        terminalreporter.write_line(f"{report.nodeid}\n{report.longreprtext[-3000:]}\n")
