"""The programs of docs/ways.md, run as they stand there; each is stopped, and goes on where it
was.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.access.world import Server
from tests.feeds import Feed
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services

DOCS: Final = Path(__file__).parents[2] / "docs"
DOC: Final = (DOCS / "ways.md").read_text()
MODULES: Final = Path(__file__).parents[1] / "js/node_modules"
PROGRAMS: Final[dict[str, str]] = {
    name: block
    for block, name in re.findall(r"```\w+\n((?:#|//) (\w+\.\w+)\b.*?)```", DOC, re.DOTALL)
}
FOLLOWING: Final = (
    "follow.py",
    "follow.mjs",
    "follow.sh",
    "follow_socket.py",
    "follow_socket.mjs",
    "small.py",
)
ENDING: Final = ("read_pages.mjs", "latest.py", "latest.mjs", "latest.sh", "sheet.sh")
ASKED: Final = ("sheet.pq",)
"""No interpreter of it runs here: what it asks for is asked."""
SMALL: Final = shutil.which("micropython") or sys.executable
"""What runs the program for microcontrollers: MicroPython where the machine has it (`apt-get
install micropython`), else CPython on what they have in common."""


def written(name: str, directory: Path, server: Server, feed: Feed) -> list[str]:
    """A program for this server and stream, and how it is run."""
    text = PROGRAMS[name].replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
    path = directory / name
    path.write_text(text.replace("vehicle_position", feed.name))
    (directory / "node_modules").symlink_to(MODULES)
    runs = {".py": sys.executable, ".mjs": "node", ".sh": "sh"}
    return [SMALL if name == "small.py" else runs[path.suffix], str(path)]


def test_all_programs_of_the_page_are_run() -> None:
    assert set(PROGRAMS) == {*FOLLOWING, *ENDING, *ASKED}
    blocks = re.findall(r"```(?:python|js|sh|powerquery)\n", DOC)
    assert len(blocks) == len(PROGRAMS)


@pytest.mark.parametrize("page", ["ways", "access", "sync"])
def test_a_program_that_dies_while_it_keeps_its_place_has_the_one_before(page: str) -> None:
    """Each replaces its file: one that is written in place is empty for a moment."""
    text = DOCS.joinpath(f"{page}.md").read_text()
    kept = re.findall(r"\.replace\(place\)|\brename\w*\(\"cursor\.new\"|\bmv cursor\.new", text)
    assert len(kept) == {"ways": 7, "access": 1, "sync": 1}[page]
    assert not re.search(r"> cursor\.txt|rite\w*\(\"cursor\.txt|place\.write", text)


def numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"['\"]n['\"]: ?([\d.]+)", text)]


@pytest.mark.parametrize("name", FOLLOWING)
def test_it_follows_and_goes_on_where_it_was(
    access_a: Server, feed: Feed, tmp_path: Path, name: str
) -> None:
    words = written(name, tmp_path, access_a, feed)
    output = tmp_path / "output.txt"
    for run in range(2):
        feed.send(n=15)
        with output.open("a") as out, (tmp_path / "errors.txt").open("a") as errors:
            running = subprocess.Popen(
                words, cwd=tmp_path, stdout=out, stderr=errors, start_new_session=True
            )
            try:
                wait_until(
                    lambda run=run: len(numbers(output.read_text())) >= 15 * (run + 1),  # type: ignore[misc]
                    "it shows them",
                )
                wait_until((tmp_path / "cursor.txt").exists, "it keeps its place")
            finally:
                subprocess.run(["kill", "--", f"-{running.pid}"], check=False)
                running.wait(PATIENCE_S)
    found = numbers(output.read_text())
    assert list(dict.fromkeys(found)) == [float(n) for n in range(1, 31)]
    assert len(found) <= 31, "at most what was shown and not kept when it was stopped comes again"


@pytest.mark.parametrize("name", ["follow_socket.py", "follow_socket.mjs"])
def test_a_socket_that_is_told_that_it_is_behind_goes_on(
    access_a: Server, feed: Feed, tmp_path: Path, name: str
) -> None:
    """`behind` has `events`, too: their number, over which the programs stumbled."""
    words, count = written(name, tmp_path, access_a, feed), 3000
    feed.send(n=100, frames=count // 100)
    output, errors = tmp_path / "output.txt", tmp_path / "errors.txt"
    with output.open("w") as out, errors.open("w") as err:
        running = subprocess.Popen(words, cwd=tmp_path, stdout=out, stderr=err)
        try:
            wait_until(
                lambda: "behind" in errors.read_text(), "it is told", timeout_s=2 * PATIENCE_S
            )
            shown = len(numbers(output.read_text()))
            wait_until(lambda: len(numbers(output.read_text())) > shown, "it goes on")
            assert running.poll() is None, errors.read_text()
        finally:
            running.kill()
            running.wait(PATIENCE_S)


@pytest.mark.parametrize("name", ENDING)
def test_it_reads_what_there_is_and_ends(
    access_a: Server, feed: Feed, tmp_path: Path, name: str
) -> None:
    words = written(name, tmp_path, access_a, feed)
    feed.send(n=5)
    expected = [float(n) for n in range(1, 6)] if "pages" in name or "sheet" in name else [5.0]

    def run() -> list[float]:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        table = tmp_path / "readings.csv"
        if table.exists():
            return [float(row["n"]) for row in csv.DictReader(table.read_text().splitlines())]
        return numbers(done.stdout)

    wait_until(lambda: run() == expected, "what it shows")  # a new stream is heard of soon


def test_what_a_spreadsheet_asks_for_is_a_table(access_a: Server, feed: Feed) -> None:
    """The words of the program for Power Query, asked as it asks."""
    feed.send(n=3)
    text = PROGRAMS["sheet.pq"]
    (path,) = re.findall(r'RelativePath = "(.*?)"', text)
    (query,) = re.findall(r"Query = \[(.*?)\]", text)
    asked = dict(re.findall(r'(\w+) = "(.*?)"', query))
    assert asked.keys() == {"format", "from", "limit"}
    assert "Authorization" in text

    def rows() -> list[str]:
        address = f"{access_a.url}/{path.replace('vehicle_position', feed.name)}"
        answer = httpx.get(address, params=asked)
        return [row.get("n", "") for row in csv.DictReader(answer.text.splitlines())]

    wait_until(lambda: rows() == ["1.0", "2.0", "3.0"], "it is a table")
