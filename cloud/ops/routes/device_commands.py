"""Routes about commands and settings of devices."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.ops.routes.shared import DeviceName, Page, Services, is_hidden
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.downlink.down_message import Arg, Command, Settings
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import (
    ARGS_MAX,
    EXPIRES_S_MAX,
    ID_PATTERN,
    MESSAGE_BYTES_MAX,
    Answer,
    DownKind,
)
from edgewake.protocol.frames.frame import COUNTER_MAX
from edgewake.protocol.names import FIELD_PATTERN

WAITING, UNANSWERED = "waiting", "unanswered"
MessageId = Annotated[str, Path(pattern=ID_PATTERN)]
Args = Annotated[
    tuple[Annotated[Arg, Field(json_schema_extra={"pattern": r"^[^\x00]*$"})], ...],
    Field(max_length=ARGS_MAX)
]  # fmt: skip
Life = Annotated[int, Field(ge=1, le=EXPIRES_S_MAX)]


class CommandRequest(BaseModel):
    """A command from the device's allow-list."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=f"^{FIELD_PATTERN.pattern}$")]
    args: Args = ()
    expires_s: Life = 3600
    """Seconds after which a device must not begin it any more."""
    id: Annotated[str, Field(pattern=ID_PATTERN)] | None = None
    """Your id, which makes a repeated request harmless; null: one is generated."""


class SettingsRequest(BaseModel):
    """The tables of an agent's configuration that can be set remotely."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=MESSAGE_BYTES_MAX)]
    """TOML that replaces earlier settings; keys that it omits are as in the device's own file."""
    version: Annotated[int, Field(ge=1, le=COUNTER_MAX)] | None = None
    """A version greater than all before; null: the next one."""
    expires_s: Life = 7 * 86_400


class DownView(BaseModel):
    """A message to a device, and its outcome."""

    id: str
    device: str
    via: str = ""
    """The gateway that it was sent to, for a thing behind one."""
    state: str
    """waiting; unanswered: it has expired, though the device may still report its outcome; else the
    state of the answer."""
    asked_at: int
    asked_by: str
    expires_at: int
    answered_at: int | None
    answer: Answer | None


class CommandView(DownView):
    """A command and its outcome."""

    name: str
    args: tuple[str, ...]


class SettingsView(DownView):
    """Settings."""

    version: int
    text: str


def _view(row: DownRow, now_ms: int) -> CommandView | SettingsView:
    waiting = WAITING if row.waits_at(now_ms) else UNANSWERED
    facts = row.model_dump(
        include={"device", "via", "asked_at", "asked_by", "expires_at", "answered_at"}
    )
    facts |= {"state": row.answer.state.value if row.answer else waiting, "answer": row.answer}
    message = row.message
    if isinstance(message, Command):
        return CommandView(**facts, **asdict(message))
    assert isinstance(message, Settings)
    return SettingsView(**facts, **asdict(message))


def router(services: Services) -> APIRouter:
    """Makes the routes that send commands and settings."""
    routes = APIRouter(tags=["devices"])
    table, desk, clock = services.tables.down, services.down, services.clock

    def view(row: DownRow) -> CommandView:
        found = _view(row, clock.now_ms())
        assert isinstance(found, CommandView)
        return found

    @routes.post("/v1/devices/{device}/commands", status_code=202, responses=problems(409))
    async def command(device: DeviceName, body: CommandRequest, request: Request) -> CommandView:
        """Send a command to a device.

        It is executed once, also by a device that sleeps now and wakes before the command expires.
        """
        if is_hidden(request, device, is_change=True):
            raise Problem(403, "role", f"you have no grant with the action command of {device!r}")
        by = request.state.holder.name
        return view(
            await desk.command(device, body.id, body.name, body.args, body.expires_s, by=by)
        )

    @routes.get("/v1/devices/{device}/commands")
    async def commands(device: DeviceName, request: Request) -> Page[CommandView]:
        """List commands of a device, latest first: all that wait, and the last twenty ended."""
        found = [view(row) for _, row in table.of(device, DownKind.COMMAND)]
        if is_hidden(request, device):
            found = []
        return Page(items=found, next=None, total=len(found))

    @routes.get("/v1/devices/{device}/commands/{command_id}", responses=problems(404))
    async def one(device: DeviceName, command_id: MessageId, request: Request) -> CommandView:
        """Show a command and the device's answer."""
        row = table.get(device, command_id)
        if row is None or row.kind is not DownKind.COMMAND or is_hidden(request, device):
            raise Problem(404, "no_such_command", f"unknown command {command_id!r} of {device!r}")
        return view(row)

    _add_settings(routes, services)
    return routes


def _add_settings(routes: APIRouter, services: Services) -> None:
    def view(row: DownRow) -> SettingsView:
        found = _view(row, services.clock.now_ms())
        assert isinstance(found, SettingsView)
        return found

    @routes.put("/v1/devices/{device}/config", status_code=202, responses=problems(409))
    async def set_config(
        device: DeviceName, body: SettingsRequest, request: Request
    ) -> SettingsView:
        """Set a device's configuration.

        The device refuses keys that must not be changed remotely, and returns to the last working
        configuration if the new one fails.
        """
        by = request.state.holder.name
        return view(
            await services.down.settings(device, body.text, body.version, body.expires_s, by=by)
        )

    @routes.get("/v1/devices/{device}/config", responses=problems(404))
    async def get_config(device: DeviceName) -> SettingsView:
        """Show the latest settings of a device and its answer."""
        found = services.tables.down.of(device, DownKind.SETTINGS)
        if not found:
            raise Problem(
                404, "no_config", f"device {device!r} was never given settings; PUT sends some"
            )
        return view(found[0][1])
