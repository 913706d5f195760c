"""Commands by device: rows of `ew.down`, joined with answers that came as readings. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgewake.protocol.downlink.down_row import ENDED_MAX, DownRow, key_of
from edgewake.protocol.downlink.downlink import ANSWER_FIELDS, Answer, AnswerState, DownKind

UNMATCHED_MAX: Final = 10_000
"""The most answers that wait for their row, or have none; the oldest are dropped."""


class CommandTable:
    """The messages to devices."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, DownRow]] = {}
        """Device → id → row, in the order of the requests."""
        self._answers: OrderedDict[tuple[str, str], tuple[Answer, int]] = OrderedDict()
        """(key of the row, gateway that brought it) → answer that is not in the row yet, and its
        time."""

    def put(self, key: str, value: bytes | None) -> None:
        """Applies a record of `ew.down`. Raises ValueError."""
        device, _, message_id = key.rpartition("|")
        if value is None:
            found = self._rows.get(device, {})
            found.pop(message_id, None)
            if not found:
                self._rows.pop(device, None)
            return
        row = DownRow.model_validate_json(value)
        self._rows.setdefault(device, {})[message_id] = row
        if row.answer is not None:
            self._answers.pop((key, row.via), None)

    def on_answer(self, reading: Mapping[str, Any]) -> None:
        """Applies a reading of the answers' stream, with device and gateway as the bridge saw them.

        Raises ValueError where it is not an answer.
        """
        answer = Answer.checked(
            {name: reading[name] for name in ANSWER_FIELDS if reading.get(name) is not None}
        )
        if answer.state is AnswerState.TRYING:
            return
        key = key_of(reading["device"], answer.id), reading.get("via", "")
        row = self.get(reading["device"], answer.id)
        if row is None or row.answer is None:
            self._answers.setdefault(key, (answer, reading["received_at"]))
            while len(self._answers) > UNMATCHED_MAX:
                self._answers.popitem(last=False)

    def answered(self) -> Iterator[tuple[str, DownRow]]:
        """Yields (key, row with its answer) for rows to be written."""
        for (key, via), (answer, at) in list(self._answers.items()):
            device, _, message_id = key.rpartition("|")
            row = self.get(device, message_id)
            if row is not None and row.kind is answer.kind and row.via == via:
                yield key, row.model_copy(update={"answer": answer, "answered_at": at})

    def get(self, device: str, message_id: str) -> DownRow | None:
        """Returns the row of a message."""
        return self._rows.get(device, {}).get(message_id)

    def of(self, device: str, kind: DownKind) -> list[tuple[str, DownRow]]:
        """Returns (id, row) of a device, latest first."""
        found = [
            (message_id, row)
            for message_id, row in self._rows.get(device, {}).items()
            if row.kind is kind
        ]
        return sorted(found, key=lambda item: (item[1].asked_at, item[0]), reverse=True)

    def open_of(self, device: str, now_ms: int) -> int:
        """Returns commands and settings that wait for a device's answer."""
        return sum(
            row.waits_at(now_ms) and row.kind is not DownKind.REPLY
            for row in self._rows.get(device, {}).values()
        )

    def open_by(self, gateway: str, now_ms: int) -> int:
        """Counts messages that wait for answers by a gateway, for all things behind it."""
        return sum(
            row.via == gateway and row.waits_at(now_ms)
            for rows in self._rows.values()
            for row in rows.values()
        )

    def to_forget(self, device: str, now_ms: int) -> list[str]:
        """Returns keys of ended messages to a device, without the latest ENDED_MAX of each kind.

        Settings are kept for comparison with those that replaced them.
        """
        keys: list[str] = []
        for kind in (
            DownKind.COMMAND,
            DownKind.SETTINGS,
        ):  # Replies are removed with their requests.
            ended = [
                message_id for message_id, row in self.of(device, kind) if not row.waits_at(now_ms)
            ]
            keys += [key_of(device, message_id) for message_id in ended[ENDED_MAX:]]
        return keys
