"""Kinds of queries differ behind one port (cloud/analysis/jobs/job.py): nobody else tells them
apart.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.house.source import ROOT, imports, modules

JOBS = Path("cloud/analysis/jobs")
WINDOWS_OF_SPARK = {
    Path("cloud/analysis/repair/repairs.py"),
    Path("cloud/analysis/repair/rebuild.py"),
}
"""They compute windows again that Spark keeps, so they ask for that kind by name."""


def _kind_files() -> list[Path]:
    return [path for path in modules(str(JOBS)) if path.name.endswith("_job.py")]


def _classes(path: Path, base: str) -> list[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(one, ast.Name) and one.id == base for one in node.bases)
    ]


def test_every_kind_has_its_line_in_the_registry_and_is_known_there_alone():
    registry = (ROOT / JOBS / "kinds.py").read_text("utf-8")
    for path in _kind_files():
        (job,) = _classes(path, "Job")
        assert f"Kind({job}" in registry, f"{path}: no line in KINDS"
        name = f"edgewake.cloud.analysis.jobs.{path.stem}"
        knowing = {
            other
            for other in modules("cloud")
            if any(one.startswith(name) for _, one in imports(other))
        }
        assert knowing - WINDOWS_OF_SPARK == {JOBS / "kinds.py"}


def _tells_kinds_apart(text: str) -> list[int]:
    """Lines that ask whether something is a certain Job, or has the States of one."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(
            isinstance(one, ast.Name) and one.id.endswith(("Job", "States"))
            for one in ast.walk(node.args[1])
        )
    ]


def test_nobody_asks_which_kind_a_job_is():
    found = {str(path): _tells_kinds_apart((ROOT / path).read_text()) for path in modules("cloud")}
    assert {path: lines for path, lines in found.items() if lines} == {}
    asking = "def f(job):\n    return isinstance(job, RowJob | StreamJoinJob)"
    assert _tells_kinds_apart(asking) == [2]


ASKS_A_QUERY = re.compile(r"\bquery\.(is_paired|is_table|is_rows|is_completed)\b")


def test_all_who_ask_a_query_what_is_written_in_it_are_named_in_the_recipe():
    """So that a new kind is thought through there, too."""
    allowed = (Path("cloud/queries"), JOBS)
    asking = [
        path
        for path in modules("cloud")
        if not any(path.is_relative_to(room) for room in allowed)
        and ASKS_A_QUERY.search((ROOT / path).read_text("utf-8"))
    ]
    assert asking
    repair = Path("cloud/analysis/repair")
    assert [path for path in asking if path.is_relative_to(repair)] == [], "they ask Job"
    assert [str(path) for path in asking if f"`{path}`" not in _recipe()] == []


def _recipe() -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    return text[text.index("## A new kind of query") : text.index("## A new aggregate")]


def test_the_port_is_what_architecture_says_it_is():
    """Names that a reader is sent to."""
    section = _recipe()
    tree = ast.parse((ROOT / JOBS / "job.py").read_text("utf-8"))
    port = {
        node.name
        for of in tree.body
        if isinstance(of, ast.ClassDef) and of.name in ("Job", "States")
        for node in of.body
        if isinstance(node, ast.FunctionDef)
    }
    named = {"graph", "new_states", "restored", "outputs", "follower", "catch_up", "is_due"}
    named |= {"in_silence", "whole"}
    assert named <= port
    assert {name for name in named if f"`{name}`" not in section} == set()
