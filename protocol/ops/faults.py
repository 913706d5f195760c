"""What is asked of `edgewake up --faults`, and what it answers: one line of JSON each.

    {"key":"…","order":{"kind":"kill","target":"bridge-1"}}
    {"parts":[…],"links":[…],"faults":[…],"verdict":{…}}

The key is that of the installation; a line without an order only looks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

LINE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a question or an answer; an answer of twenty parts and faults has some five thousand."""
SENTENCES_MAX: Final = 10
"""What the ledger found wrong, the newest sentences."""


class FaultKind(StrEnum):
    """The faults that can be made."""

    KILL = "kill"
    """SIGKILL for a part and its descendants."""
    FREEZE = "freeze"
    """SIGSTOP for a part and its descendants, for ten seconds."""
    CUT = "cut"
    """A link passes nothing on for ten seconds; then its connections break."""


class Order(BaseModel):
    """One fault that is to happen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: FaultKind
    target: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")]
    """A part, e.g. bridge-1; of a cut: a link, e.g. devices."""


class Question(BaseModel):
    """A line that is sent to the supervisor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    order: Order | None = None


class PartState(BaseModel):
    """A part that a fault may be done to."""

    name: str
    state: str
    restarts: int


class LinkState(BaseModel):
    """A way between parts that can be cut."""

    name: str
    text: str
    """From where to where."""
    is_cut: bool


class FaultDone(BaseModel):
    """A fault that happened, and when it was over."""

    number: int
    kind: FaultKind
    target: str
    at: int
    """When it happened, ms since 1970 UTC."""
    over_at: int | None = None
    """When the part was ready again, or the link whole; null: not yet."""


class Verdict(BaseModel):
    """What the ledger knows: readings of its own devices, and what it was shown of them."""

    at: int
    """When it was judged, ms since 1970 UTC."""
    taken: int
    """Readings that were given to devices."""
    shown: int
    """The readings among them that came out at a reader, each counted once."""
    waiting: int
    """The readings among them that are on their way."""
    oldest_ms: int
    """For how long the oldest of those waits."""
    lost: int
    """Never shown, though later ones of their device were."""
    twice: int
    """Readings and revisions of windows that were shown again."""
    wrong: int
    """Shown otherwise than given, or never given; windows that are final and not what their
    readings say."""
    windows: int
    """Windows that are final, and right to the last bit."""
    late: int
    """Windows that are not judged: some of their readings came later than the query waits."""
    sentences: Annotated[list[str], Field(max_length=SENTENCES_MAX)] = []
    """What is wrong, in words, the newest first."""


class FaultsView(BaseModel):
    """An answer of the supervisor."""

    parts: list[PartState]
    links: list[LinkState]
    faults: list[FaultDone]
    """The newest first."""
    verdict: Verdict | None
    """Null: the ledger has not begun yet."""


class Refused(BaseModel):
    """The other answer: an order that cannot be done."""

    refused: str
    """A fixed word: unknown_key, no_such_target, not_running, still_on."""
    detail: str
