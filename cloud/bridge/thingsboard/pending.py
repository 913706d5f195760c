"""A command that a device of ThingsBoard was sent, and the answer that goes to who asked. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import mqtt5
import orjson

from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.protocol import topics
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import ANSWERS, Answer, AnswerState, DownKind


@dataclass(slots=True)
class Pending:
    """A command that was sent."""

    row_id: str
    name: str
    device: str

    @classmethod
    def of(cls, row: DownRow, asked: Command) -> Pending:
        """The one of a row."""
        return cls(asked.id, asked.name, row.device)

    def answered(self, state: AnswerState, output: str, detail: str, now_ms: int) -> Part:
        """The device's answer, as it would send it by MQTT."""
        answer = Answer(
            id=self.row_id,
            kind=DownKind.COMMAND,
            state=state,
            detail=detail,
            name=self.name,
            output=output or None,
        )
        body = {"t": now_ms, **answer.fields()}
        return Part(mqtt5.PublishPacket(topics.up(self.device, ANSWERS), orjson.dumps(body)))
