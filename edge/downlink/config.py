"""What the cloud may do on this device: keys of `[downlink]`.

Nothing, unless it is said here; no pushed configuration changes it.
"""

from __future__ import annotations

from typing import Annotated, Final

from edgewake.protocol.downlink.downlink import ARGS_MAX, OUTPUT_CHARS_MAX
from edgewake.protocol.names import is_field
from edgewake.protocol.plain import Check, ConfigTable, Length, key

THING: Final = "{thing}"
COMMANDS_MAX: Final = 100
"""Commands of a device. More are refused."""


def _name(name: str) -> str:
    if not is_field(name):
        raise ValueError(
            "expected 1-64 of A-Z a-z 0-9 _, no digit first, and no name of the envelope"
        )
    return name


def _program(argv: tuple[str, ...]) -> tuple[str, ...]:
    if not argv[0].startswith("/"):
        raise ValueError("expected the program's whole path first")
    return argv


class CommandConfig(ConfigTable):
    """One command that the cloud may call by its name, `[downlink.command.NAME]`."""

    argv: Annotated[tuple[str, ...], Length(1, 64), Check(_program)]
    """The program, by its whole path, and its arguments. No shell is used. `{thing}` in an
    argument makes it a command for things behind this device, and stands for the name of the
    one."""
    args_max: int = key(default=0, ge=0, le=ARGS_MAX)
    """Arguments that the cloud may add behind them; none of them begins with a hyphen, so none is
    an option."""
    timeout_s: float = key(default=60.0, gt=0, le=3600)
    """Seconds after which it and what it started is killed. Commands run one after another."""
    output_bytes_max: int = key(default=4096, ge=0, le=OUTPUT_CHARS_MAX)
    """Bytes of its output that are sent; what follows is read and left out."""
    repeatable: bool = False
    """May it be run again where the agent ended while it ran? Else that is answered as
    interrupted."""

    @property
    def is_for_things(self) -> bool:
        """Is it called for a thing behind this device, and not for the device?"""
        return any(THING in arg for arg in self.argv)


class DownlinkConfig(ConfigTable):
    """What the cloud may do here."""

    command: Annotated[
        dict[Annotated[str, Check(_name)], CommandConfig], Length(0, COMMANDS_MAX)
    ] = key(default_factory=dict)
    """The commands, by name. All others are refused."""
    settings: bool = False
    """May the cloud set the tables `source`, `chain`, `log` and `uplink` of this configuration?
    Whoever may, reads every file that the agent can read."""
    requests: bool = False
    """Does this device ask the cloud? Then a source or chain may make `device_requests`, and
    `edgewake-agent requests` shows replies."""
    health_s: float = key(default=60.0, gt=0, le=3600)
    """Seconds in which the cloud must have acknowledged a frame under new settings; else those
    before come back."""
