"""Waiting as a user does: a cold and warm starts of the demo until windowed results, a query added, Ctrl-C.

`python -m tests.bench.bench_up [--runs 3] [--json FILE]`: a fresh clone in an empty folder with empty caches (Debian's packages are there)
does what `make demo` does on free ports; the cold start is one run, then come as many warm ones on the same data.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import httpx

from tests.bench.figures import Found, run
from tests.services import Process, free_ports, wait_until

ROOT = Path(__file__).parents[2]
CEILINGS_S = {
    "cold start, from the clone to windowed results": 300.0,
    "warm start, to windowed results": 60.0,
    "query add, to its first result on SSE": 10.0,
    "Ctrl-C, to the end of the last process": 15.0,
}
UP_S = 600.0
SETTLE_S = 25.0
"""Until the lane of the summaries runs as well."""
SQL = """-- name: {name}
-- description: How often each vehicle was faster than 50 km/h, and how fast, every ten seconds
SELECT device, count(*) AS times, max(speed_kmh) AS fastest
FROM vehicle_position
WHERE speed_kmh > 50
GROUP BY window(event_time, '10 seconds'), device
"""


def measure(folder: Path, runs: int) -> Found:
    """One cold start, then warm ones."""
    found: Found = defaultdict(list)
    clone = folder / "edgewake"
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "PIP_NO_CACHE_DIR": "1"}
    began = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(["make", "--silent", ".venv/installed-demo"], cwd=clone, env=os.environ | environment, check=True)
    base = free_ports(1)[0]
    for i in range(runs + 1):
        process = Process(
            [".venv/bin/edgewake", "up", "--data", "./data", "--port-base", str(base)], folder / f"{i}.log", env=environment, cwd=clone
        )
        began = began if i == 0 else time.monotonic()
        with process:
            _await_result(process, f"http://127.0.0.1:{base}/v1/streams/host_10s/events")
            took = time.monotonic() - began
            if i == 0:
                _note(found, "cold start, from the clone to windowed results", took)
            else:
                _note(found, "warm start, to windowed results", took)
                time.sleep(SETTLE_S)
                _note(found, "query add, to its first result on SSE", _add_query(process, clone, base, f"fast_{i}"))
            began = time.monotonic()
            process.signal(signal.SIGINT)
            wait_until(lambda process=process: not process.is_running(), "it ended")  # type: ignore[misc]
            _note(found, "Ctrl-C, to the end of the last process", time.monotonic() - began)
            assert process.stop() == 0, process.output()[-2000:]
    return found


def _note(found: Found, name: str, seconds: float) -> None:
    found[f"up: {name}", "s", CEILINGS_S[name]].append(seconds)


def _await_result(process: Process, url: str) -> None:
    """Until an SSE stream shows an event with data; the server and the stream need not be there yet."""
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        assert process.is_running(), f"edgewake up ended: {process.output()[-3000:]}"
        try:
            with httpx.stream("GET", url, timeout=5.0) as response:
                if response.status_code == 200 and any(line.startswith("data: {") for line in response.iter_lines()):
                    return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"no result at {url}: {process.output()[-3000:]}")


def _add_query(process: Process, clone: Path, base: int, name: str) -> float:
    file = clone / f"{name}.sql"
    file.write_text(SQL.format(name=name))
    command = [
        ".venv/bin/edgewake",
        "query",
        "--ops",
        f"http://127.0.0.1:{base + 2}",
        "--key-file",
        "data/secrets/ops.key",
        "add",
        file.name,
    ]
    began = time.monotonic()
    subprocess.run(command, cwd=clone, check=True, stdout=subprocess.DEVNULL)
    _await_result(process, f"http://127.0.0.1:{base}/v1/streams/{name}/events?from=earliest")
    return time.monotonic() - began


if __name__ == "__main__":
    run(measure, __doc__)
