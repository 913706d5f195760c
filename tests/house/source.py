"""What the house tests look at: the files of this repository and the imports in them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("protocol", "edge", "cloud", "simulators", "deploy")


@cache
def files() -> tuple[Path, ...]:
    """All files of the repository, relative to it: what git tracks and what it would track."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    return tuple(
        sorted({Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()})
    )


def modules(*folders: str) -> list[Path]:
    """Python files of some floors, or of folders in them."""
    within = tuple(f"{folder}/" for folder in folders)
    return [path for path in files() if path.suffix == ".py" and path.as_posix().startswith(within)]


def module_name(path: Path) -> str:
    """`edgewake.cloud.log.hub` of cloud/log/hub.py."""
    return "edgewake." + path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def says_what_it_is_for(path: Path) -> bool:
    """Has a file a docstring?"""
    return _read(path).is_explained


def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a file, those inside functions included; `from a import b`
    gives a.b.
    """
    return _read(path).imports


@dataclass(frozen=True)
class _Source:
    is_explained: bool
    imports: tuple[tuple[int, str], ...]


@cache
def _read(path: Path) -> _Source:
    text = (ROOT / path).read_text("utf-8")
    tree = ast.parse(text, filename=str(path))
    return _Source(bool(ast.get_docstring(tree)), tuple(imports_in(tree.body, path)))


def imports_in(statements: Sequence[ast.AST], path: Path | str) -> Iterator[tuple[int, str]]:
    """As `imports`. An import is a statement, so expressions, most of a tree, are not looked at."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path}:{node.lineno}: a relative import hides which floor it goes to"
            )
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        else:
            for part in ("body", "handlers", "orelse", "finalbody", "cases"):
                inside = getattr(node, part, ())
                # A lambda's body is one expression.
                yield from imports_in(inside if isinstance(inside, list) else (), path)


def forbidden(paths: list[Path], *prefixes: str) -> list[str]:
    """The imports in `paths` that begin with one of `prefixes`, as `file:line: module`."""
    return [
        f"{path}:{line}: {module}"
        for path in paths
        for line, module in imports(path)
        if any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)
    ]
