"""What CONTRIBUTING.md (Words) calls the old voice: none of its marks comes back."""

from __future__ import annotations

import io
import re
import tokenize

from tests.house.source import FLOORS, ROOT, modules

_BEGINS = re.compile(r"\W*(Of|Whom|Whose|So many|As many|Once more|That of|Those of|The same)\b")
"""A sentence without a subject and a verb mostly begins so."""
_HAS = re.compile(
    r"\banew\b|\bso many\b|(?<!there )\bis (no|none)\b(?! (longer|more than))|\bwhom\b"
)


def old_voice(text: str) -> list[tuple[int, str]]:
    """(line, mark) of each place in the docstrings, strings and comments of a module."""
    found = []
    kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in kinds:
            continue
        begins = _BEGINS.match(token.string)
        is_prose = token.string.startswith(('"""', "#"))
        if begins is not None and is_prose:
            found.append((token.start[0], begins.group()))
        for mark in _HAS.finditer(token.string):
            found.append((token.start[0] + token.string.count("\n", 0, mark.start()), mark.group()))
    return found


def test_old_voice_is_found_where_it_stands() -> None:
    text = '"""Of one."""\nx = "is no x, made anew"\n# For whom\ny = 1  # is no longer one\n'
    assert old_voice(text) == [(1, '"""Of'), (2, "is no"), (2, "anew"), (3, "whom")]


def test_the_old_voice_does_not_come_back() -> None:
    found = [
        f"{path}:{line}: {mark!r}"
        for path in modules(*FLOORS)
        for line, mark in old_voice((ROOT / path).read_text("utf-8"))
    ]
    assert found == [], "write sentences with a subject and a verb: CONTRIBUTING.md, Words"


_SAYS_NOTHING = re.compile(r'"""(See the module|The source|Inside a transaction)\.')


def test_no_docstring_sends_the_reader_elsewhere() -> None:
    """Its first words say what the thing is: an editor shows them where it is used."""
    found = [
        f"{path}: {match.group()}"
        for path in modules(*FLOORS)
        for match in _SAYS_NOTHING.finditer((ROOT / path).read_text("utf-8"))
    ]
    assert found == []


if __name__ == "__main__":
    for path in modules(*FLOORS):
        for line, mark in old_voice((ROOT / path).read_text("utf-8")):
            print(f"{path}:{line}: {mark!r}")
