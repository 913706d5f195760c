"""Runs every benchmark, prints one table, and writes docs/benchmarks.md and docs/benchmarks.json.

`python -m tests.bench.report [--runs 3] [--only NAME …]`. A figure is the median of its runs; the
last column says where it misses its floor; each section says how (the benchmark's own words), when
and beside which load, and after its table what limits the figures (the benchmark's LIMITS).

Figures can be compared only where nothing else ran and all are of one revision. So a benchmark
begins when the load average is at most LOAD_MAX, or is refused; and the page is printed whole: what
was measured is kept in build/benchmarks.json, --only adds to it, and the page is written when every
benchmark has figures of the revision that is checked out, with nothing changed in it. Exit code 1
where a benchmark failed, was refused, or missed a floor.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from edgewake.deploy.programs import java, kafka_node, mosquitto
from tests.bench.figures import AT_MOST, is_met

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
KEPT = HERE.parents[1] / "build" / "benchmarks.json"
"""What was measured, until the page is whole."""
LOAD_MAX = 0.5
"""Load average of the last minute above which nothing is measured: half a process that wants a
processor, whatever their number. One that waits for nothing else shares caches and memory with what
is measured, and takes a quarter of a small machine."""
QUIET_S = 600
"""Seconds to wait for that: what a benchmark itself left behind in the average is gone after four
minutes."""
LOOK_S = 5
TIMEOUT_S = 3600
"""Of a benchmark. Three runs of the slowest, with all rivals, take half of it."""
LIBRARIES = (
    "confluent-kafka",
    "fastapi",
    "mqtt5",
    "orjson",
    "pydantic",
    "pyspark",
    "uvicorn",
    "uvloop",
    "zstandard",
)


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    bench: str
    name: str
    value: float
    unit: str
    floor: float | None = None
    rival: str | float | None = None
    runs: Sequence[float] = field(default=())

    @property
    def met(self) -> bool:
        """Is the floor reached (or there is none)?"""
        return is_met(self.value, self.unit, self.floor)


def benches() -> list[str]:
    """Names of the benchmarks that exist."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def measure(name: str, runs: int) -> list[Figure]:
    """Run one benchmark in a process of its own, so that none leaves memory or threads to the next;
    raises CalledProcessError.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            f"tests.bench.bench_{name}",
            "--runs",
            str(runs),
            "--json",
            str(out),
        ]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
        return [figure(name, row) for row in json.loads(out.read_text())]


def figure(bench: str, row: Mapping[str, Any]) -> Figure:
    """A row of a benchmark's JSON; null there: what was waited for did not happen."""
    runs = [_value(run) for run in row.get("runs", ())]
    return Figure(
        bench,
        row["name"],
        _value(row["value"]),
        row["unit"],
        row.get("floor"),
        row.get("rival"),
        runs,
    )


def _value(written: float | None) -> float:
    return math.inf if written is None else float(written)


def _written(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def row(figure: Figure) -> dict[str, Any]:
    """Of docs/benchmarks.json."""
    return vars(figure) | {
        "value": _written(figure.value),
        "runs": [_written(run) for run in figure.runs],
        "met": figure.met,
    }


def machine() -> dict[str, str]:
    """Where it was measured."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{psutil.cpu_count()} cores, {_processor()}",
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "system": (
            f"{platform.freedesktop_os_release().get('PRETTY_NAME', platform.system())}, Linux "
            f"{platform.release()}"
        ),
        "Python": platform.python_version(),
        "Java": str(java.version(java.ensure())),
        "Kafka": kafka_node.VERSION,
        "Mosquitto": ".".join(map(str, mosquitto.version(mosquitto.ensure()))),
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        "revision": _revision(),
    }


def _processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    return done.stdout.strip() or "unknown"


class TooBusy(Exception):
    """The text says how busy, and what to do."""


def wait_for_quiet(
    load: Callable[[], float] = lambda: os.getloadavg()[0],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until the load average is at most LOAD_MAX. Raises TooBusy."""
    for _ in range(QUIET_S // LOOK_S):
        if load() <= LOAD_MAX:
            return
        sleep(LOOK_S)
    raise TooBusy(
        f"the load average is {load():.1f}, and was above {LOAD_MAX} for {QUIET_S} s: nothing "
        "that is measured now is written down. "
        "Stop what else runs here; `make bench-NAME` measures all the same and writes nothing"
    )


def why_not_written(figures: Sequence[Figure], revision: str) -> str:
    """Why the page cannot be printed yet; empty: it can."""
    if revision.endswith("-dirty") or revision == "unknown":
        return (
            f"the revision is {revision}: commit first, so that somebody else can measure the same"
        )
    if missing := sorted(set(benches()) - {figure.bench for figure in figures}):
        return (
            f"it is printed when every benchmark has figures of {revision}; not yet measured: "
            f"{', '.join(missing)}"
        )
    return ""


def _circumstances() -> str:
    """When a benchmark was run, of what, beside what, and on how fast a machine: of two with the
    same name one may be twice as fast.
    """
    when, load = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC at {_revision()}", os.getloadavg()[0]
    took_s = min(
        timeit.repeat(
            "for i in numbers: total += i * i",
            "numbers, total = range(10_000_000), 0",
            number=1,
            repeat=3,
        )
    )
    return (
        f"{when}, load average before {load:.1f}; on {_processor()} Python added up ten million "
        f"squares in {took_s:.2f} s"
    )


def method(bench: str) -> str:
    """How a benchmark measures: its module's words, without those on how to call it."""
    words = ast.get_docstring(_parsed(bench)) or ""
    return re.sub(r"\s*`python -m tests\.bench[^`]*`[:.]?", "", words).strip()


def limits(bench: str) -> str:
    """What limits its figures, and why some fall short: its constant LIMITS."""
    for node in _parsed(bench).body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "LIMITS"
            and node.value is not None
        ):
            return str(ast.literal_eval(node.value)).strip()
    return ""


def _parsed(bench: str) -> ast.Module:
    """Read, not imported: some need what only a bench's machine has."""
    return ast.parse(HERE.joinpath(f"bench_{bench}.py").read_text("utf-8"))


def number(value: float) -> str:
    """Three significant digits at least, thousands apart."""
    if math.isinf(value):
        return "never"
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:,.1f}"
        if abs(value) >= 10
        else f"{value:,.2f}"
    )


def cells(figure: Figure) -> list[str]:
    """A row of the table."""
    sign = "≤" if figure.unit in AT_MOST else "≥"
    floor = "" if figure.floor is None else f"{sign} {number(figure.floor)}"
    spread = f"{number(min(figure.runs))} – {number(max(figure.runs))}" if figure.runs else ""
    rival = (
        ""
        if figure.rival is None
        else figure.rival
        if isinstance(figure.rival, str)
        else number(figure.rival)
    )
    return [
        figure.name,
        number(figure.value),
        figure.unit,
        floor,
        spread,
        rival,
        "" if figure.met else "missed",
    ]


HEAD = ["what", "median", "unit", "floor", "runs", "others", ""]


def markdown(
    figures: Sequence[Figure], where: Mapping[str, str], measured: Mapping[str, str]
) -> str:
    """docs/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        (
            "Written by `make bench`. Each figure is the median of its runs; everything shares "
            "one machine:"
        ),
        "",
    ]
    lines += [f"* {key}: {value}" for key, value in where.items()]
    for bench in dict.fromkeys(figure.bench for figure in figures):
        own = [figure for figure in figures if figure.bench == bench]
        lines += section(bench, own, measured.get(bench, "at an unknown time"))
    absent = [name for name in benches() if name not in {figure.bench for figure in figures}]
    lines += [
        "",
        *(
            f"`{name}` has no figures: it failed or was not run yet; `make bench-{name}` runs it."
            for name in absent
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def section(bench: str, figures: Sequence[Figure], when: str) -> list[str]:
    """The lines on one benchmark: how it measures, its figures, what limits them."""
    return [
        "",
        f"## {bench}",
        "",
        f"Measured {when}.",
        "",
        "```text",
        method(bench),
        "```",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|---:|---|---:|---|---|---|",
        *(f"| {' | '.join(cells(figure))} |" for figure in figures),
        *(["", limits(bench)] if limits(bench) else []),
    ]


def table(figures: Sequence[Figure]) -> str:
    """For a terminal."""
    rows = [HEAD, *map(cells, figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    left = {0, 2, 4, 5, 6}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def kept(
    again: Collection[str], revision: str, file: Path = KEPT
) -> tuple[list[Figure], dict[str, str]]:
    """Figures of this revision that are not measured again, and when they were."""
    try:
        before = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return [], {}
    if before["machine"]["revision"] != revision:
        return [], {}
    figures = [figure(row["bench"], row) for row in before["figures"] if row["bench"] not in again]
    return figures, {name: when for name, when in before["measured"].items() if name not in again}


def text_of(
    figures: Sequence[Figure],
    where: Mapping[str, str],
    measured: Mapping[str, str],
    failed: Sequence[str],
) -> str:
    """As docs/benchmarks.json has it."""
    document = {
        "machine": where,
        "measured": measured,
        "figures": [row(figure) for figure in figures],
        "failed": failed,
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--only",
        action="append",
        choices=benches(),
        help="Only this one; others keep their figures of this revision.",
    )
    arguments = parser.parse_args()
    where, failed = machine(), list[str]()
    figures, measured = kept(set(arguments.only or benches()), where["revision"])
    KEPT.parent.mkdir(exist_ok=True)
    for name in arguments.only or benches():
        print(f"\n== {name}", flush=True)
        try:
            wait_for_quiet()
            measured[name] = _circumstances()
            figures += measure(name, arguments.runs)
        except (subprocess.SubprocessError, OSError, ValueError, KeyError, TooBusy) as error:
            print(f"{name} failed: {error}", file=sys.stderr, flush=True)
            failed.append(name)
        figures.sort(key=lambda figure: figure.bench)
        # After each: an interrupted run keeps what it has.
        KEPT.write_text(text_of(figures, where, measured, failed), "utf-8")
    if why := why_not_written(figures, where["revision"]):
        print(f"\ndocs/benchmarks.md stays as it is: {why}", file=sys.stderr)
    else:
        DOCS.joinpath("benchmarks.md").write_text(markdown(figures, where, measured), "utf-8")
        DOCS.joinpath("benchmarks.json").write_text(
            text_of(figures, where, measured, failed), "utf-8"
        )
    print(
        "\n"
        + "\n".join(f"{key}: {value}" for key, value in where.items())
        + "\n\n"
        + table(figures)
    )
    sys.exit(1 if failed or not all(figure.met for figure in figures) else 0)


if __name__ == "__main__":
    main()
