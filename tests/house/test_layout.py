"""The shape of the repository."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from hashlib import sha256
from pathlib import Path

from tests.house.source import FLOORS, ROOT, files, modules, says_what_it_is_for

FOLDERS = {"edge", "cloud", "protocol", "simulators", "deploy", "edgewake", "tests", "docs"}
USUAL = {
    "pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md",
    "SECURITY.md", "LICENSE", "LICENSES", "REUSE.toml",
    "Makefile",
    ".gitignore", ".gitattributes", ".git-blame-ignore-revs", ".dockerignore",
    ".pre-commit-config.yaml", ".ci",
}  # fmt: skip
"""Besides these nothing lies at the top. `.gitattributes` and `.dockerignore` may be missing."""
REGISTRIES = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".",
    "maven" + ".org",
    "maven.apache" + ".org",
    "--index" + "-url",
)
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".lock",
    ".yaml",
    ".yml",
    ".json",
    ".js",
    ".html",
    ".sql",
    ".sh",
    ".cfg",
    ".service",
    ".conf",
    "",
}


def test_the_top_level_is_the_house_and_the_usual_files():
    top = {path.parts[0] for path in files()}
    assert top - FOLDERS - USUAL == set()
    assert (FOLDERS | USUAL) - top <= {".gitattributes", ".dockerignore"}


def test_packages_are_two_levels_deep_at_most():
    assert [
        path
        for path in modules("protocol", "edge", "cloud", "simulators", "deploy")
        if len(path.parts) > 4
    ] == []


def test_a_folder_holds_fewer_than_twenty_modules():
    """So that one look shows what is in it: a family of files gets a folder of its own."""
    held = Counter(path.parent for path in modules(*FLOORS) if path.name != "__init__.py")
    assert [f"{folder}: {count}" for folder, count in held.items() if count >= 20] == []


def test_folders_of_tests_with_fixtures_of_their_own_are_packages():
    """To pytest a folder without `__init__.py` is none: what its fixtures of scope `package` start
    would live to the end of the run.
    """
    folders = [
        path.parent
        for path in (ROOT / "tests").rglob("conftest.py")
        if "node_modules" not in path.parts
    ]
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_module_says_what_it_is_for():
    silent = [path for path in modules(*FLOORS, "docs") if not says_what_it_is_for(path)]
    assert silent == [], "expected a docstring; that of __init__.py says what its room is for"


def test_a_file_of_another_room_is_named_with_its_room():
    """`schedule/slow.py` in a docstring, not `slow.py`: a reader looks beside the module first, and
    six files are named run.py.
    """
    alone = re.compile(r"(?<![\w/.*-])\w+\.py\b")
    found = [
        f"{path}: {name}"
        for path in modules(*FLOORS)
        for name in set(alone.findall((ROOT / path).read_text("utf-8")))
        if not (ROOT / path.parent / name).exists()
    ]
    assert found == []


def test_no_file_names_a_package_registry():
    """Where packages come from is the installer's configuration, never ours."""
    texts = [path for path in files() if path.suffix in TEXT and "vendor" not in path.parts]
    found = [
        f"{path}: {host}"
        for path in texts
        for host in REGISTRIES
        if host in (ROOT / path).read_text("utf-8", "replace")
    ]
    assert found == []


def test_the_pages_libraries_are_what_the_manifest_says():
    vendor = ROOT / "cloud/page/vendor"
    libraries = json.loads((vendor / "manifest.json").read_text())
    listed = {
        vendor / lib["name"] / Path(file).name: digest
        for lib in libraries
        for file, digest in lib["files"].items()
    }
    assert {path: sha256(path.read_bytes()).hexdigest() for path in vendor.glob("*/*")} == listed
    assert all(any(file == "LICENSE" for file in lib["files"]) for lib in libraries)


def test_no_file_holds_a_merge_that_was_not_resolved():
    marks = re.compile(r"^(<{7} |>{7} )", re.MULTILINE)
    texts = [path for path in files() if path.suffix in TEXT and "vendor" not in path.parts]
    found = [path for path in texts if marks.search((ROOT / path).read_text("utf-8", "replace"))]
    assert found == []


def test_modules_stay_small():
    """A file over 740 lines has a second reason to change: split it."""
    assert [
        f"{path}: {n}"
        for path in modules(*FLOORS, "tests")
        if (n := len((ROOT / path).read_text().splitlines())) > 740
    ] == []


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LISTS = {
    "cloud/access/metrics.py: __init__": "a metric after the other",
    "cloud/bridge/metrics.py: gather": "a metric after the other",
    "cloud/ops/tables/metrics.py: collect": "a metric after the other",
    "edge/page/metrics.py: _families": "a metric after the other",
    "cloud/push/run.py: _made": "the parts of a proxy",
}
"""Functions that are longer because they are a plain list, which a split would only scatter."""


def _own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of its body, without its docstring and the functions in it: each of these is read by
    itself, as an endpoint of a router is.
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    inner = 0
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, FUNCTIONS):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            inner += (node.end_lineno or 0) - first + 1
        else:
            pending += ast.iter_child_nodes(node)
    return (function.end_lineno or 0) - body[0].lineno + 1 - inner


def test_functions_stay_short():
    """One over 60 lines does two things: give one of them a name. Routers are not long, for each of
    their endpoints is a function.
    """
    found = {
        f"{path}: {node.name}": _own_lines(node)
        for path in modules(*FLOORS)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, FUNCTIONS)
    }
    long = {name: lines for name, lines in found.items() if lines > 60}
    assert long.keys() - LISTS.keys() == set(), long
    assert LISTS.keys() - long.keys() == set(), "they are short by now"


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _makes_two_decisions(node: ast.AST) -> bool:
    if isinstance(node, ast.IfExp):
        return any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse))
    return isinstance(node, COMPREHENSIONS) and any(
        isinstance(part, ast.NamedExpr) for part in ast.walk(node)
    )


def test_a_line_makes_one_decision():
    """No conditional expression in another, no assignment inside a comprehension: two decisions are
    two statements, which a reader can follow one after the other.
    """
    found = [
        f"{path}:{node.lineno}"
        for path in modules(*FLOORS)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if _makes_two_decisions(node)
    ]
    assert found == []


def test_constants_with_a_bound_say_their_unit_or_reason():
    """Near every `…_MAX` in a module stands a reason: on its line, the line above, or within three
    lines below.
    """
    silent = []
    for path in modules("protocol", "edge", "cloud"):
        lines = (ROOT / path).read_text().splitlines()
        for i, line in enumerate(lines):
            near = lines[max(0, i - 1) : i + 4]
            if re.match(r"[A-Z_]+_MAX(: Final)? = ", line) and not any(
                "#" in text or '"""' in text for text in near
            ):
                silent.append(f"{path}: {line}")
    assert silent == []


GROWS = re.compile(
    r"self\._?\w+(: .+)? = "
    r"(\{.*)?(deque\(\)|(queue|asyncio)\.(Simple)?Queue\(\)|(Simple)?Queue\(\))"
)
"""An attribute that grows as long as nobody takes from it."""


def test_queues_that_grow_by_themselves_say_what_bounds_them():
    """On the line, or in the attribute's docstring below.

    Whether it is true is shown by the tests that ARCHITECTURE names.
    """
    grows, silent = [], []
    for path in modules("protocol", "edge", "cloud"):
        lines = (ROOT / path).read_text().splitlines()
        for i, line in enumerate(lines):
            if GROWS.search(line):
                grows.append(f"{path}:{i + 1}")
                if not re.search(r"at most|bounded", " ".join(lines[i : i + 4]), re.IGNORECASE):
                    silent.append(grows[-1])
    assert len(grows) > 10, "the expression finds none any more"
    assert silent == []


def test_no_file_holds_a_private_key():
    """Keys are made where they are used and never kept here; the tests make theirs."""
    key = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
    assert [
        path
        for path in files()
        if path.suffix in {".key", ".pem", ".p12"} or key.search((ROOT / path).read_bytes())
    ] == []
