"""The table of all benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgewake.protocol.errors import EdgewakeError
from tests.bench import report
from tests.bench.figures import Found, measured
from tests.bench.readers import summary
from tests.bench.report import Figure


def test_a_figure_is_read_from_a_benchmark_s_json() -> None:
    row = {
        "name": "log",
        "value": 412_000,
        "unit": "readings/s",
        "floor": 300_000,
        "runs": [400_000, 412_000, 420_000],
    }
    assert report.figure("log", row) == Figure(
        "log", "log", 412_000.0, "readings/s", 300_000, None, [400_000, 412_000, 420_000]
    )


def test_a_floor_is_a_ceiling_where_less_is_better() -> None:
    assert Figure("b", "n", 2.0, "readings/s", 1.0).met
    assert not Figure("b", "n", 2.0, "MiB", 1.0).met
    assert Figure("b", "n", 0.9, "ms", 1.0).met


def test_what_misses_its_floor_is_said_in_both_tables() -> None:
    figures = [
        Figure("sse", "p99", 200.0, "ms", 150.0, "nchan 1", [190.0, 200.0, 210.0]),
        Figure("sse", "other", 12_345.6, "events/s"),
    ]
    text = report.markdown(figures, {"CPU": "2 cores"}, {"sse": "2026-11-21 10:00 UTC"})
    assert "| p99 | 200.0 | ms | ≤ 150.0 | 190.0 – 210.0 | nchan 1 | missed |" in text
    assert "| other | 12,346 | events/s |  |  |  |  |" in text
    assert "Measured 2026-11-21 10:00 UTC." in text
    assert "`analysis` has no figures" in text
    assert "missed" in report.table(figures)


def test_a_section_says_how_it_was_measured_and_what_limits_it() -> None:
    text = report.markdown(
        [Figure("push", "p99", 200.0, "ms")], {"CPU": "2 cores"}, {"push": "2026-11-21 10:00 UTC"}
    )
    assert "each client must be woken exactly as its policy says" in " ".join(text.split())
    assert "python -m tests.bench.bench_push" not in text
    assert report.limits("push") in text
    assert len(report.limits("push")) > 100


def test_the_machine_and_the_versions_are_named() -> None:
    where = report.machine()
    assert where["date"].endswith("UTC")
    assert all(where.values())


def test_nothing_is_written_down_on_a_busy_machine() -> None:
    waited: list[float] = []
    with pytest.raises(
        report.TooBusy, match=r"the load average is 5\.2, and was above 0\.5 for 600 s"
    ):
        report.wait_for_quiet(lambda: 5.2, waited.append)
    assert sum(waited) == report.QUIET_S


def test_a_load_that_a_benchmark_left_behind_is_waited_for() -> None:
    loads, waited = iter([2.0, 1.1, 0.4]), list[float]()
    report.wait_for_quiet(lambda: next(loads), waited.append)
    assert waited == [report.LOOK_S, report.LOOK_S]


def test_the_page_is_printed_whole_at_one_revision() -> None:
    every = [Figure(name, "n", 1.0, "s") for name in report.benches()]
    assert report.why_not_written(every, "e3b7360") == ""
    assert "commit first" in report.why_not_written(every, "e3b7360-dirty")
    some = [figure for figure in every if figure.bench not in ("sse", "edge")]
    assert report.why_not_written(some, "e3b7360").endswith(
        "of e3b7360; not yet measured: edge, sse"
    )


def test_figures_of_another_revision_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    figures = [Figure("sse", "n", 1.0, "s", runs=[1.0]), Figure("edge", "n", 2.0, "s", runs=[2.0])]
    file.write_text(report.text_of(figures, {"revision": "a"}, {"sse": "now", "edge": "then"}, []))
    assert report.kept({"sse"}, "a", file) == ([figures[1]], {"edge": "then"})
    assert report.kept({"sse"}, "b", file) == ([], {})
    assert report.kept({"sse"}, "a", tmp_path / "none") == ([], {})


def test_a_benchmark_that_lacks_something_says_so_in_a_sentence(tmp_path: Path) -> None:
    """Without nginx, and where nothing can be installed; it ended with a traceback."""
    program = (
        "import sys, shutil, runpy\nreal = shutil.which\nshutil.which = lambda name, **more: None "
        "if name in ('nginx', 'apt-get') else real(name, **more)\nsys.argv = ['bench_sse', "
        "'--runs', '1']\nrunpy.run_module('tests.bench.bench_sse', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == "bench_sse: nginx is missing; install it, on Debian or Ubuntu with: sudo apt-get "
        "install nginx-light\n"
    )


def test_a_run_that_fails_costs_its_own_figures_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """All that was measured before it was lost."""
    rates = iter([3.0, None, 5.0])

    def measure(folder: Path, runs: int) -> Found:
        assert (list(folder.iterdir()), runs) == ([], 1)
        rate = next(rates)
        assert rate is not None, "nothing was delivered"
        return {("n", "/s", None): [rate]}

    assert measured(measure, [1, 1, 1]) == ({("n", "/s", None): [3.0, 5.0]}, 1)
    assert "nothing was delivered" in capsys.readouterr().err

    def lacks(folder: Path, runs: int) -> Found:
        raise EdgewakeError("no nchan here")

    with pytest.raises(EdgewakeError):
        measured(lacks, [1, 1])


def test_readers_have_a_page_of_their_own_also_where_one_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "polls", "value": 9.0, "unit": "polls/s", "floor": 20.0, "runs": [9.0]}
    (tmp_path / "polls.json").write_text(json.dumps([row, row | {"name": "b", "floor": None}]))
    summary.main(tmp_path, ["polls", "sse"])
    text = (tmp_path / "readers.md").read_text()
    assert "| polls | 9.00 | polls/s | ≥ 20.0 | 9.00 – 9.00 |  | missed |" in text
    assert report.limits("polls") in text
    assert "`sse` has no figures: it failed." in text
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:2]] == ["polls"]
