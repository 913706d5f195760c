"""What the benchmarks share: figures by name, their medians, and a command line that prints them
and writes them as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import psutil

from edgewake.protocol.errors import EdgewakeError

Found: TypeAlias = dict[tuple[str, str, float | None], list[float]]
"""(name, unit, bound or None) → what each run found. The bound is a floor, or a ceiling where less
is better (AT_MOST)."""

AT_MOST = ("MiB", "ms", "s", "MB", "µs", "x", "×", "cores", "% of a core", "bytes/reading", "bytes")
"""Units of which less is better: their bound is a ceiling."""


def is_met(value: float, unit: str, bound: float | None) -> bool:
    """Is the bound kept, or is there none?"""
    if bound is None:
        return True
    return value <= bound if unit in AT_MOST else value >= bound


def run(
    measure: Callable[..., Found],
    doc: str | None,
    rivals: Mapping[str, Sequence[float]] | None = None,
    sizes: Mapping[str, int | str] | None = None,
    *,
    each_alone: bool = False,
) -> None:
    """`[--runs 3] [--json FILE]`: call `measure` with an empty folder and the number of runs.

    `rivals`: name → the rival's runs.

    `each_alone`: `measure` is called once a run, and one that fails costs its own figures alone;
    the exit code is 1 then.

    `sizes`: further options with their defaults, e.g. {"states": 1000000}: `--states 5000` calls
    `measure(…, states=5000)`. An option is of its default's type; one named `rivals_only` is
    written `--rivals-only`.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    for name, default in (sizes or {}).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    arguments = parser.parse_args()
    more = {name: getattr(arguments, name) for name in sizes or {}}
    runs = [1] * arguments.runs if each_alone else [arguments.runs]
    try:
        found, failed = measured(partial(measure, **more), runs)
        figures = _medians(found, rivals or {})
    except EdgewakeError as error:  # something that it needs is not here and cannot be installed
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")
    for figure in figures:
        bound = (
            f"   bound {_number(figure['floor']):>11}{figure['missed']}" if figure["floor"] else ""
        )
        rival = f"   rival {_number(figure['rival']):>11}" if "rival" in figure else ""
        print(
            f"{figure['name']:<60} {_number(figure['value']):>13} "
            f"{figure['unit']:<12}{bound}{rival}"
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1))
    if failed:
        sys.exit(f"{Path(sys.argv[0]).stem}: {failed} of {len(runs)} runs failed: see above")


def measured(measure: Callable[[Path, int], Found], runs: Sequence[int]) -> tuple[Found, int]:
    """What all of these together found, and how many failed. Where there is one it may raise."""
    together: Found = defaultdict(list)
    failed = 0
    for number, count in enumerate(runs, 1):
        try:
            with tempfile.TemporaryDirectory() as folder:
                for name, values in measure(Path(folder), count).items():
                    together[name] += values
        except EdgewakeError:
            raise
        except Exception:
            if len(runs) == 1:
                raise
            print(f"run {number} of {len(runs)} failed:", file=sys.stderr)
            traceback.print_exc()
            failed += 1
    return together, failed


def _number(value: object) -> str:
    """With three digits at least: a tenth of a core is a difference."""
    assert isinstance(value, int | float)
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _medians(found: Found, rivals: Mapping[str, Sequence[float]]) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "value": statistics.median(values),
            "unit": unit,
            "floor": floor,
            "runs": values,
        }
        | {"missed": "" if is_met(statistics.median(values), unit, floor) else " missed"}
        | ({"rival": statistics.median(rivals[name])} if name in rivals else {})
        for (name, unit, floor), values in found.items()
    ]


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` of 100 do not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def rss_mib(pid: int, *, family: bool = False) -> float:
    """Resident memory of a process, with `family` of its descendants too."""
    process = psutil.Process(pid)
    members = [process, *(process.children(recursive=True) if family else [])]
    return float(sum(member.memory_info().rss for member in members)) / (1 << 20)
