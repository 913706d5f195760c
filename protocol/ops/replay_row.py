"""A dead letter that was given back to its stream: a row of `ew.replays`.

The topic is compacted; the key is `ReplayRow.key`.

A row is committed in one transaction with the record on the stream, so a letter is on its stream
exactly when its row is there. It stays as long as the letter is kept.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ReplayRow(BaseModel):
    """What became of one letter."""

    model_config = ConfigDict(frozen=True)

    letter: int
    """Its offset on `ew.dead`."""
    letter_at: int
    """When Kafka kept the letter, ms; with the offset it identifies the letter even if the topic is
    created again."""
    received_at: int
    """When the message came to the bridge that refused it, ms."""
    same: str
    """What copies of one message have in common: see `cloud.ops.services.letter_replay`."""
    device: str
    stream: str
    partition: int
    offset: int
    """Where on the stream's topic its readings are."""
    replayed_at: int
    """Wall clock of the operations API, ms since 1970 UTC."""
    holder: str
    """Name of the key by which it was asked for."""

    @property
    def key(self) -> str:
        """The row's key: its letter."""
        return letter_key(self.letter, self.letter_at)


def letter_key(letter: int, letter_at: int) -> str:
    """Names a letter."""
    return f"{letter}|{letter_at}"
