"""What the house tests look at: the files of this repository and the imports in them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("protocol", "edge", "cloud", "simulators", "deploy")


@cache
def files() -> tuple[Path, ...]:
    """All files of the repository, relative to it: what git tracks and what it would track."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True
    ).stdout.decode()
    return tuple(sorted({Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()}))


def modules(*folders: str) -> list[Path]:
    """Python files of some floors, or of folders in them."""
    within = tuple(f"{folder}/" for folder in folders)
    return [path for path in files() if path.suffix == ".py" and path.as_posix().startswith(within)]


def parse(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse((ROOT / path).read_text("utf-8"), filename=str(path))


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a file, those inside functions included; `from a import b` gives a.b."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides which floor it goes to"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def forbidden(paths: list[Path], *prefixes: str) -> list[str]:
    """The imports in `paths` that begin with one of `prefixes`, as `file:line: module`."""
    return [
        f"{path}:{line}: {module}"
        for path in paths
        for line, module in imports(path)
        if any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)
    ]
