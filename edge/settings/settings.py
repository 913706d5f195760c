"""Settings that the cloud pushed to this device, on trial until proven good.

Pure, but for the file.

    good ─ pushed ─▶ trial (not begun) ─ start ─▶ trial (begun) ─┬─ healthy in time ──▶ good
      ▲                                                          └─ else, or it died ─▶ failed
      └─ the last good ones again ────────────────────────────────────────────────────────┘

The device's own file says what it is: its identity, its broker, its keys, what the cloud may do.
What is set replaces whole tables of it (`SETTABLE`). A trial whose life ended before it was proven
good is over, whatever ended it: the next start takes the last good ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.edge import durable_file
from edgewake.edge.config import AgentConfig
from edgewake.protocol.errors import ConfigError

log = logging.getLogger("edgewake.downlink")

FILE_NAME: Final = "settings.json"
SETTABLE: Final = ("chain", "log", "source", "uplink")
"""Tables that may be set from afar."""
KEPT: Final = {"log": ("mode",)}
"""Keys of them that may not: without a durable log nothing that comes down would be kept."""


@dataclass(frozen=True, slots=True)
class Version:
    """One set of settings."""

    id: str
    """The id of the message that brought it."""
    version: int
    text: str


@dataclass(frozen=True, slots=True)
class SettingsState:
    """The contents of the settings file."""

    good: Version | None = None
    """None: the device's own file alone."""
    trial: Version | None = None
    is_begun: bool = False
    """Was a life with the trial begun?"""
    failed: Version | None = None
    """The last that was given up; `why` says for what."""
    why: str = ""

    @property
    def used(self) -> Version | None:
        """The version that this life uses."""
        return self.trial if self.trial is not None else self.good

    @property
    def version(self) -> int:
        """The version of the settings in use; 0: the device's own file alone."""
        return 0 if self.used is None else self.used.version

    @property
    def latest(self) -> int:
        """The greatest version that came."""
        return max(
            (one.version for one in (self.good, self.trial, self.failed) if one is not None),
            default=0,
        )

    def pushed(self, new: Version) -> SettingsState:
        """The state in which the next life tries `new`."""
        return replace(self, trial=new, is_begun=False)

    def started(self) -> SettingsState:
        """A life begins."""
        if self.trial is None:
            return self
        return (
            self.given_up("the agent ended before they had proven good")
            if self.is_begun
            else replace(self, is_begun=True)
        )

    def proven(self) -> SettingsState:
        """The trial is good."""
        return SettingsState(good=self.trial)

    def given_up(self, why: str) -> SettingsState:
        """The trial is not."""
        return SettingsState(good=self.good, failed=self.trial, why=why)


def merged(own: Mapping[str, Any], text: str, where: str) -> AgentConfig:
    """The device's own values with what was set.

    Raises ConfigError, which names what may not be set and what is wrong.
    """
    # With pydantic: for the first stage of a life, and settings_check.
    from edgewake.protocol.config import parse, values_of

    wanted = values_of(text, where)
    forbidden = [name for name in wanted if name not in SETTABLE]
    for table, keys in KEPT.items():
        inside = wanted.get(table)
        forbidden += [
            f"{table}.{key}" for key in keys if isinstance(inside, dict) and key in inside
        ]
    if forbidden:
        raise ConfigError(
            f"{where}: may not be set from afar: {', '.join(sorted(forbidden))}; may be: "
            f"{', '.join(SETTABLE)}"
        )
    for table, keys in KEPT.items():
        kept = {key: own[table][key] for key in keys if key in own.get(table, {})}
        if kept and table in wanted:
            wanted[table] = wanted[table] | kept
    return parse(AgentConfig, {**own, **wanted}, where)


def _version(found: Mapping[str, Any]) -> Version:
    """Raises ValueError, KeyError, TypeError."""
    return Version(str(found["id"]), int(found["version"]), str(found["text"]))


class SettingsFile:
    """The file in the agent's data folder, and the device's own values."""

    def __init__(
        self, own: Mapping[str, Any], data_dir: Path, started: SettingsState | None = None
    ) -> None:
        """`started`: the state with which the running life began, where `start` was called."""
        self.own = own
        self.started = started
        self._path = data_dir / FILE_NAME

    def read(self) -> SettingsState:
        """Read the settings; empty without a file.

        Raises ConfigError where it cannot be read.
        """
        try:
            found = orjson.loads(self._path.read_bytes())
            versions = {
                name: _version(found[name]) if found[name] else None
                for name in ("good", "trial", "failed")
            }
            return SettingsState(
                **versions, is_begun=bool(found["is_begun"]), why=str(found["why"])
            )
        except FileNotFoundError:
            return SettingsState()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def write(self, state: SettingsState) -> None:
        """Durably, whole or not at all. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable_file.replace(self._path, orjson.dumps(asdict(state)))

    def start(self) -> AgentConfig:
        """The configuration of the life that begins now.

        What cannot be used is given up: a device that cannot be reached is worth less than one that
        measures as its own file says. So is one that waits for room on its disk: what cannot be
        written is decided again by the next start. Raises ConfigError where that file is wrong.
        """
        before = self._read_or_set_aside()
        state = before.started()
        config = None
        while config is None and state.used is not None:
            try:
                config = merged(self.own, state.used.text, f"settings of version {state.version}")
            except ConfigError as error:
                log.error(
                    "settings cannot be used: %s",
                    error,
                    extra={"event": "settings.given_up", "version": state.version},
                )
                state = (
                    state.given_up(str(error))
                    if state.trial
                    else SettingsState(failed=state.good, why=str(error))
                )
        if state != before and not self._is_written(state) and state.trial is not None:
            # That it was begun is not durable: it would be tried again and again.
            state, config = (SettingsState(good=before.good), None)
            if before.good is not None:
                config = merged(
                    self.own, before.good.text, f"settings of version {before.good.version}"
                )
        self.started = state
        return config or merged(self.own, "", "the agent's configuration")

    def _is_written(self, state: SettingsState) -> bool:
        try:
            self.write(state)
        except OSError as error:
            log.error(
                "what became of settings cannot be kept yet: %s",
                error,
                extra={"event": "settings.not_kept"},
            )
            return False
        return True

    def _read_or_set_aside(self) -> SettingsState:
        try:
            return self.read()
        except ConfigError as error:
            log.error("what was set is lost: %s", error, extra={"event": "settings.lost"})
            self._path.replace(self._path.with_suffix(".damaged"))
            return SettingsState()
