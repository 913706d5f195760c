"""`pytest -n 6`: the tests run in six processes, forked from one that has collected them.

Whoever starts processes anew imports and collects everything in each of them: 4 s of processor each. What a library does in a thread is
lost in a fork, so no thread may run until all is collected: services, clients and Spark are started by fixtures, never by an import.

The first process runs no test. It gives a bundle of tests (`tests/sharing_out.py`) to each process that asks for one, and reports as if it
had run them. A process that dies fails the test that it was at, and a new one takes its place. Ctrl-C, `-x` and whatever else ends a run
before its time end all processes, their fixtures torn down; if the first process is killed, all are.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, context
from pathlib import Path
from typing import Any, Final, Literal
from warnings import WarningMessage

import pytest
from _pytest.tmpdir import TempPathFactory

from tests.sharing_out import bundles, file_of

WORKER: Final = "PYTEST_XDIST_WORKER"
"""Holds a process's name, gw0, gw1, …: by this variable libraries know that other tests run beside theirs."""
END_S: Final = 60.0
"""Until a process that was asked to end, and to stop its services, is killed."""
NO_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables under which numpy and pyarrow start no thread when they are imported."""
_PR_SET_PDEATHSIG: Final = 1
_FORK: Final = context.ForkContext()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("processes")._addoption(
        "-n", "--processes", type=int, default=0, metavar="count", help="run the tests in so many processes; 0: in this one"
    )


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything is imported: only the first process is without threads, what tests start is as always."""
    if early_config.known_args_namespace.processes:
        os.environ.update(NO_THREADS)


@dataclass
class Process:
    """One that runs tests, as the first process sees it."""

    name: str
    pipe: connection.Connection
    child: context.ForkProcess
    given: deque[int] = field(default_factory=deque)
    """Tests, by their place in `session.items`, that it has and of which it did not tell the outcome. It runs them in this order."""
    last: int | None = None
    """The test of which it told the outcome last."""
    is_over: bool = False
    """Has it ended as it should?"""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all in other processes; None: leave it to pytest, which also says what could not be collected."""
    options = session.config.option
    if not options.processes or options.collectonly or options.usepdb or session.testsfailed:
        return None
    _Run(session).run(options.processes)
    return True


class _Run:
    """The first process."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._left = deque(bundles([item.nodeid for item in session.items], _with_services(session.items)))
        self._processes: dict[connection.Connection, Process] = {}
        self._names = (f"gw{number}" for number in itertools.count())

    def run(self, count: int) -> None:
        """pytest's Failed or Interrupted when it was told to stop before all was run; RuntimeError where a process could not go on."""
        config = self._session.config
        if reporter := config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # several files at a time
        config.pluginmanager.getplugin("capturemanager").stop_global_capturing()  # its files are each process's own
        try:
            while self._left or self._processes:
                while self._left and len(self._processes) < count:
                    self._start()
                for pipe in connection.wait(list(self._processes)):
                    self._hear(self._processes[pipe])
                self._stop_if_told()
        finally:
            _end(self._processes.values())

    def _start(self) -> None:
        threads = len(list(Path("/proc/self/task").iterdir()))
        assert threads == 1, f"{threads} threads run before the first test, and no fork would have them: {threading.enumerate()}"
        ours, theirs = _FORK.Pipe()
        name = next(self._names)
        child = _FORK.Process(target=_work, args=(self._session, name, theirs, [*self._processes, ours]), name=name)
        child.start()
        theirs.close()
        self._processes[ours] = Process(name, ours, child)

    def _hear(self, process: Process) -> None:
        try:
            what, value = process.pipe.recv()
        except (EOFError, OSError):
            self._bury(process)
            return
        match what:
            case "more":
                self._give(process)
            case "tested":
                process.last = process.given.popleft()
                self._hook.pytest_runtest_logfinish(**_place(self._session.items[process.last]))
            case "reports":
                for data in value:
                    self._report(self._hook.pytest_report_from_serializable(config=self._session.config, data=data))
            case "warning":
                self._hook.pytest_warning_recorded.call_historic(kwargs=value)
            case "broken":
                raise RuntimeError(f"in {process.name}: {value}")
            case "over":
                process.is_over = True

    def _give(self, process: Process) -> None:
        given = self._left.popleft() if self._left else []
        process.given.extend(given)
        # One that is gone meanwhile is heard of, too.
        with contextlib.suppress(OSError):
            process.pipe.send(given)

    def _report(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self._hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        self._hook.pytest_runtest_logreport(report=report)

    def _bury(self, process: Process) -> None:
        """Fail the test at which it died, and give what it had left to others."""
        del self._processes[process.pipe]
        process.pipe.close()
        process.child.join()
        if process.is_over:
            return
        code = process.child.exitcode or 0
        why = f"{process.name} ended by {signal.Signals(-code).name}" if code < 0 else f"{process.name} ended with {code}"
        if process.given:
            self._fail(process.given.popleft(), "call", f"{why} at this test")
            self._left.appendleft(list(process.given))
        elif process.last is not None:
            self._fail(process.last, "teardown", f"{why} after this test")
        else:
            raise RuntimeError(f"{why} before its first test")

    def _fail(self, test: int, when: Literal["call", "teardown"], why: str) -> None:
        item = self._session.items[test]
        self._report(pytest.TestReport(item.nodeid, item.location, keywords={}, outcome="failed", longrepr=why, when=when))
        self._hook.pytest_runtest_logfinish(**_place(item))

    def _stop_if_told(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


def _end(processes: Iterable[Process]) -> None:
    """End those that are still at work, and all that they started."""
    processes = list(processes)
    for process in processes:
        process.pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.child.pid or 0, signal.SIGINT)
    until = time.monotonic() + END_S
    try:
        for process in processes:
            process.child.join(max(0.0, until - time.monotonic()))
    finally:
        for process in processes:
            process.child.kill()
            process.child.join()


def _work(session: pytest.Session, name: str, pipe: connection.Connection, of_others: Sequence[connection.Connection]) -> None:
    """A forked process, to its end."""
    try:
        for one in of_others:
            one.close()
        last = _run_to_the_end(session, name, pipe)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pipe.send(last)
    finally:
        # Neither what others registered for the end of the first process, nor for threads that a test left.
        os._exit(0)


def _run_to_the_end(session: pytest.Session, name: str, pipe: connection.Connection) -> tuple[str, str | None]:
    """What is to be told last."""
    try:
        try:
            _settle(session.config, name)
            _run_tests(session, pipe)
        finally:
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=pytest.ExitCode.OK)
            session.config._ensure_unconfigure()
    except BaseException:
        return "broken", traceback.format_exc()
    return "over", None


def _settle(config: pytest.Config, name: str) -> None:
    """Become a process of its own: with folders, captured output and a name."""
    os.setpgrp()  # Ctrl-C in a terminal is for the first process, which tells the others
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ[WORKER] = name
    for variable in NO_THREADS:
        del os.environ[variable]
    config.workerinput = {"workerid": name}  # pytest's plugins write their files in a process without
    config.option.basetemp = str(Path(config._tmp_path_factory.getbasetemp()) / name)
    config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # what pytest says of each test
    os.close(null)
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.start_global_capturing()
    capture.suspend_global_capture()


def _run_tests(session: pytest.Session, pipe: connection.Connection) -> None:
    reports = _Reports(session.config, pipe)
    session.config.pluginmanager.register(reports)
    item = None
    for given in _given(pipe):
        for at, following in itertools.zip_longest(given, given[1:]):
            item = session.items[at]
            # The session stays when a bundle is over; its files and packages end.
            nextitem = session if following is None else session.items[following]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            reports.tell()
            pipe.send(("tested", at))
            if session.shouldfail or session.shouldstop:
                raise session.Interrupted(session.shouldfail or session.shouldstop)
    if item is not None:
        call = pytest.CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), "teardown")
        if call.excinfo:
            reports.pytest_runtest_logreport(pytest.TestReport.from_item_and_call(item, call))
            reports.tell()


def _given(pipe: connection.Connection) -> Iterator[Sequence[int]]:
    """Bundle after bundle, until none is left."""
    while True:
        pipe.send(("more", None))
        if not (given := pipe.recv()):
            return
        yield given


@dataclass(eq=False)
class _Reports:
    """Tells the first process what pytest reports here: at the end of a test, and at once what is not well."""

    _config: pytest.Config
    _pipe: connection.Connection
    _untold: list[object] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._untold.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
        if not report.passed:
            self.tell()

    def pytest_warning_recorded(self, warning_message: WarningMessage, when: str, nodeid: str, location: object) -> None:
        told = WarningMessage(str(warning_message.message), warning_message.category, warning_message.filename, warning_message.lineno)
        self._pipe.send(("warning", {"warning_message": told, "when": when, "nodeid": nodeid, "location": location}))

    def tell(self) -> None:
        """Send what was not sent yet."""
        if self._untold:
            self._pipe.send(("reports", self._untold))
            self._untold.clear()


def _with_services(items: Iterable[pytest.Item]) -> set[str]:
    return {file_of(item.nodeid) for item in items if item.get_closest_marker("services")}


def _place(item: pytest.Item) -> dict[str, Any]:
    return {"nodeid": item.nodeid, "location": item.location}
