"""The first line of a docstring is a whole sentence: editors and lists show nothing else of it."""

from __future__ import annotations

import ast

from tests.house.source import FLOORS, ROOT, modules

BROKEN_MAX = 60
"""Docstrings whose first sentence goes on in a second line. It only goes down."""


def _broken(tree: ast.AST) -> list[int]:
    """Lines of docstrings whose first paragraph has more than one line."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = []
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text is not None and "\n" in text.split("\n\n", 1)[0]:
            found.append(getattr(node, "lineno", 1))
    return found


def test_a_first_line_that_breaks_off_is_found() -> None:
    tree = ast.parse('"""One.\n\nTwo\nthree."""\ndef f():\n    """One\n    and two."""\n')
    assert _broken(tree) == [5]


def test_first_lines_of_docstrings_are_whole_sentences() -> None:
    found = [
        f"{path}:{line}"
        for path in modules(*FLOORS)
        for line in _broken(ast.parse((ROOT / path).read_text("utf-8")))
    ]
    assert len(found) <= BROKEN_MAX, "\n".join(found)
