"""What the house tests know of a file."""

from __future__ import annotations

import ast

from tests.house.source import imports_in

EVERYWHERE = """
import a01, a02 as other
try:
    import b01
except OSError:
    import b02
else:
    import b03
finally:
    import b04
try:
    pass
except* OSError:
    import b05
match 1:
    case 1:
        import c01
class Kept:
    import d01
    if 1:
        import d02
    elif 2:
        import d03
    else:
        from d04 import name
    with open("x") as x:
        import d05
async def work():
    async with x:
        import e01
    async for y in x:
        import e02
    else:
        import e03
    while 1:
        import e04
    for y in x:
        import e05
    def inside():
        return lambda: import_nothing()
        import e06
"""


def test_an_import_is_found_wherever_a_statement_may_stand() -> None:
    tree = ast.parse(EVERYWHERE)
    named = [
        (node.lineno, node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert len(named) == 18
    assert [line for line, _ in imports_in(tree.body, "here.py")] == sorted(
        line for line, node in named for _ in node.names
    )
