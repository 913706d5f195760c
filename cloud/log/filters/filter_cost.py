"""What a filter costs at worst for one event, known before it is accepted.

A step is about a tenth of a microsecond: one operator, field or literal. Each part of a filter is
evaluated at most once for an event, so the cost of a tree is the sum of its parts'. What depends on
a text's length is taken at TEXT_CHARS_MAX characters; on longer texts LIKE, length, lower and upper
are NULL. COST_MAX steps, a millisecond, is what one event may take: between two events others have
their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgewake.cloud.log.filters.filter_functions import FUNCTIONS
from edgewake.cloud.log.filters.filter_like import search_width
from edgewake.cloud.log.filters.filter_syntax import Call, Column, Node, Value
from edgewake.protocol.errors import FilterError
from edgewake.protocol.frames.frame import STRING_CHARS_MAX

TEXT_CHARS_MAX: Final = STRING_CHARS_MAX
"""Characters of a text that functions and LIKE work on: the longest that a device may send. Results
may hold longer ones."""
COST_MAX: Final = 10_000
"""Steps for one event, about a millisecond. A filter that costs more is refused (422)."""
STEPS_PER_LOOK: Final = 10_000
"""Steps after which a reader should look at the clock."""
_STEPS_PER_TEXT: Final = 100
"""The steps of one pass over a text."""
_STEPS_PER_DECIMAL: Final = 30
"""The steps of rounding, which counts in decimals."""
_STEPS_PER_LIST: Final = 2
"""The steps of a look-up in a list of texts."""
_CHARS_PER_STEP: Final = 50
"""Characters compared in a step by a search with `_`."""
_TEXTUAL: Final = frozenset({"lower", "upper"})
_LIKES: Final = frozenset({"like", "ilike", "not_like", "not_ilike"})


def is_list(node: Node) -> bool:
    """Is it IN with a list of texts alone, which is one look-up?"""
    return (
        isinstance(node, Call)
        and node.name == "in"
        and all(isinstance(arg, Value) and isinstance(arg.value, str) for arg in node.args[1:])
    )


def cost(node: Node) -> int:
    """Steps of a tree for one event, at worst."""
    if isinstance(node, Call) and is_list(node):
        return own_cost(node) + cost(node.args[0])
    return own_cost(node) + (sum(map(cost, node.args)) if isinstance(node, Call) else 0)


def own_cost(node: Node) -> int:
    """Steps of a node without those below it."""
    if not isinstance(node, Call):
        return 1
    if is_list(node):
        return _STEPS_PER_LIST
    if node.name == "in_set":
        return _STEPS_PER_LIST
    if node.name in FUNCTIONS:
        told = FUNCTIONS[node.name]
        behind = told.parts_of(len(node.args))
        literals = [arg.value for arg in node.args[behind:] if isinstance(arg, Value)]
        return told.cost(literals)
    if node.name in _LIKES:
        return 1 + _like_cost(node)
    if node.name == "round":
        return _STEPS_PER_DECIMAL
    return _STEPS_PER_TEXT if node.name in _TEXTUAL else max(1, len(node.args) - 1)


def check_cost(what: str, nodes: Sequence[Node]) -> int:
    """The cost of a filter; raises FilterError above COST_MAX."""
    steps = sum(map(cost, nodes))
    if steps > COST_MAX:
        raise FilterError(
            f"{what}: costs {steps} steps an event at worst, expected at most {COST_MAX}; the "
            "most expensive are LIKE patterns with _ between two %, and searches for words"
        )
    return steps


def nodes_of(columns: Sequence[Column]) -> list[Node]:
    """What is calculated for the columns of a select."""
    return [Value(None) if column.node is None else column.node for column in columns]


def events_per_look(steps: int) -> int:
    """Events of `steps` each after which a reader should check the clock."""
    return max(1, STEPS_PER_LOOK // max(1, steps))


def _like_cost(node: Call) -> int:
    pattern, *escape = [str(arg.value) for arg in node.args[1:] if isinstance(arg, Value)]
    width = search_width(pattern, escape=escape[0] if escape else None)
    return (
        _STEPS_PER_TEXT * (2 if "ilike" in node.name else 1)
        + TEXT_CHARS_MAX * width // _CHARS_PER_STEP
    )
