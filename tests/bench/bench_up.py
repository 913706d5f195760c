"""Waiting as a user does: a cold and warm starts of the demo until windowed results, a query added,
Ctrl-C.

`python -m tests.bench.bench_up [--runs 3] [--json FILE]`: a fresh clone in an empty folder with
empty caches (Debian's packages are there) does what `make demo` does on free ports; the cold start
is one run, then come as many warm ones on the same data.

A result is a row of a window, `final` or not; an event that only tells where the stream stands is
none. A query's time begins with the start of `edgewake query add` and ends when an SSE client that
asks for its results from the earliest on has the first row. It is taken on a stream whose lane runs
already (20 readings a second), on a calm one (one a second), and on one that has no lane yet. In
between is told when the operations API knew the query. `tail` begins when `query add` has ended, as
in a shell, shows what comes from then on, and its own start is counted. Every wait sees a real row,
or the benchmark fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx
import orjson

from tests.bench.figures import Found, run
from tests.services import Process, free_ports, wait_until

ROOT = Path(__file__).parents[2]
FIRST_RESULT: Final = "query add, to its first result on SSE"
CEILINGS_S: Final = {
    "cold start, from the clone to windowed results": 300.0,
    "warm start, to windowed results": 60.0,
    FIRST_RESULT: 3.0,
    f"{FIRST_RESULT}, calm stream": 3.0,
    f"{FIRST_RESULT}, stream without a lane": 3.0,
    "Ctrl-C, to the end of the last process": 15.0,
}
UP_S: Final = 600.0
RESULT_S: Final = 120.0
"""After which a query that told nothing fails."""
SETTLE_S: Final = 25.0
"""Until the lane of the summaries runs as well."""
LOOK_EVERY_S: Final = 0.1
"""A figure is larger by so much at most."""
_SQL: Final = """-- name: {name}
-- description: What a user asks first
SELECT {select}
FROM {stream} {where}
GROUP BY window(event_time, '10 seconds'), {key}
"""
FAST: Final = {
    "select": "device, count(*) AS times, max(speed_kmh) AS fastest",
    "stream": "vehicle_position",
    "where": "WHERE speed_kmh > 50",
    "key": "device",
}
LOAD: Final = {
    "select": "device, max(cpu_percent) AS most",
    "stream": "host_metrics",
    "where": "",
    "key": "device",
}
PARTS: Final = {
    "select": "part, count(*) AS times, max(rss_mib) AS most",
    "stream": "part_status",
    "where": "",
    "key": "part",
}


def measure(folder: Path, runs: int) -> Found:
    """One cold start, then warm ones."""
    found: Found = defaultdict(list)
    clone = folder / "edgewake"
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "PIP_NO_CACHE_DIR": "1"}
    began = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(
        ["make", "--silent", ".venv/installed-demo"],
        cwd=clone,
        env=os.environ | environment,
        check=True,
    )
    base = free_ports(1)[0]
    for i in range(runs + 1):
        process = Process(
            [".venv/bin/edgewake", "up", "--data", "./data", "--port-base", str(base)],
            folder / f"{i}.log",
            env=environment,
            cwd=clone,
        )
        began = began if i == 0 else time.monotonic()
        with process:
            _await_row(process, f"http://127.0.0.1:{base}/v1/streams/host_10s/events", UP_S)
            took = time.monotonic() - began
            if i == 0:
                _note(found, "cold start, from the clone to windowed results", took)
            else:
                _note(found, "warm start, to windowed results", took)
                time.sleep(SETTLE_S)
                _Queries(process, clone, base).measure(i, found)
            began = time.monotonic()
            process.signal(signal.SIGINT)
            wait_until(lambda process=process: not process.is_running(), "it ended")  # type: ignore[misc]
            _note(found, "Ctrl-C, to the end of the last process", time.monotonic() - began)
            assert process.stop() == 0, process.output()[-2000:]
    return found


def _note(found: Found, name: str, seconds: float) -> None:
    found[f"up: {name}", "s", CEILINGS_S.get(name)].append(seconds)


class _Queries:
    """Adds queries to a running demo, as a user does."""

    def __init__(self, process: Process, clone: Path, base: int) -> None:
        self._process, self._clone, self._base = process, clone, base
        key = (clone / "data/secrets/ops.key").read_text().strip()
        self._ops = httpx.Client(
            base_url=f"http://127.0.0.1:{base + 2}", headers={"authorization": f"Bearer {key}"}
        )

    def measure(self, number: int, found: Found) -> None:
        """One on each kind of stream; the last is removed again, so that the next start's is the
        first one of its stream, too.
        """
        self._time(f"fast_{number}", FAST, found, "")
        self._time(f"load_{number}", LOAD, found, ", calm stream")
        self._time(f"parts_{number}", PARTS, found, ", stream without a lane")
        self._command("query", *self._to_ops(), "remove", f"parts_{number}")
        began = time.monotonic()
        self._add(f"seen_{number}", FAST)
        self._command(
            "tail",
            "--server",
            f"http://127.0.0.1:{self._base}",
            "--json",
            "--count",
            "1",
            f"seen_{number}",
        )
        _note(
            found, "query add, then tail, to the first row that it prints", time.monotonic() - began
        )

    def _time(self, name: str, query: Mapping[str, str], found: Found, kind: str) -> None:
        url = f"http://127.0.0.1:{self._base}/v1/streams/{name}/events?from=earliest"
        began = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            known, told = (
                pool.submit(self._await_known, name),
                pool.submit(_await_row, self._process, url, RESULT_S),
            )
            self._add(name, query)
            runs = time.monotonic()
        _note(found, f"{FIRST_RESULT}{kind}", told.result() - began)
        _note(found, f"query add, until the operations API knows it{kind}", known.result() - began)
        _note(found, f"query add, until the command says that it runs{kind}", runs - began)

    def _add(self, name: str, query: Mapping[str, str]) -> None:
        file = self._clone / f"{name}.sql"
        file.write_text(_SQL.format(name=name, **query))
        self._command("query", *self._to_ops(), "add", file.name)

    def _to_ops(self) -> tuple[str, ...]:
        return "--ops", f"http://127.0.0.1:{self._base + 2}", "--key-file", "data/secrets/ops.key"

    def _command(self, *arguments: str) -> None:
        subprocess.run(
            [".venv/bin/edgewake", *arguments],
            cwd=self._clone,
            check=True,
            capture_output=True,
            timeout=RESULT_S,
        )

    def _await_known(self, name: str) -> float:
        return _await(
            lambda: self._ops.get(f"/v1/queries/{name}").status_code == 200, f"{name} is registered"
        )


def _await(condition: Callable[[], bool], what: str) -> float:
    """When it became true, monotonic seconds."""
    deadline = time.monotonic() + RESULT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {RESULT_S:g} s: {what}"
        time.sleep(LOOK_EVERY_S)
    return time.monotonic()


def _await_row(process: Process, url: str, timeout_s: float) -> float:
    """When an SSE stream showed a row of a window, monotonic seconds; the server and the stream
    need not be there yet.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert process.is_running(), f"edgewake up ended: {process.output()[-3000:]}"
        try:
            with httpx.stream(
                "GET", url, timeout=httpx.Timeout(5.0, read=max(1.0, deadline - time.monotonic()))
            ) as response:
                if response.status_code == 200 and any(map(_is_row, response.iter_lines())):
                    return time.monotonic()
        except httpx.HTTPError:
            pass
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"no result at {url}: {process.output()[-3000:]}")


def _is_row(line: str) -> bool:
    """Events that tell the position or the watermark have no window."""
    return line.startswith("data: {") and "window_start" in orjson.loads(
        line.removeprefix("data: ")
    )


if __name__ == "__main__":
    run(measure, __doc__)
