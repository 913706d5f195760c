"""Comments in files of a word or two a line: keys, names, what is taken back."""

from __future__ import annotations

import re
from typing import Final

_COMMENT: Final = re.compile(r"(?:^|\s)#")


def without_comment(line: str) -> str:
    """The line without its comment: `#` begins one at the beginning and behind a blank.

    Within a word it is a character as others: of a subject, or of a key that somebody made up.
    """
    return _COMMENT.split(line, maxsplit=1)[0].strip()
