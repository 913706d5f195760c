"""`edgewake-agent init`: writes a configuration file, a map file, and credentials.

It asks for what its options do not say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgewake.edge import durable_file
from edgewake.edge.commands import first_sources
from edgewake.edge.commands.first_config import Login, configuration_text, write_new
from edgewake.edge.commands.first_sources import Having
from edgewake.protocol.errors import LocalError
from edgewake.protocol.maps.compiling import FILE_BYTES_MAX
from edgewake.protocol.names import is_device

if TYPE_CHECKING:
    from edgewake.edge.commands.enrolling import Enrolled

BROKER: Final = "127.0.0.1:1883"
SYSTEM_DATA_DIR: Final = "/var/lib/edgewake"
OWN_TOPICS: Final = "mqtt_subscribe"
"""The choice of who has topics of his own: a map file is written for them."""
Ask = Callable[..., Any]
"""Like `click.prompt`: (question, default=…) → the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The answers that the flags give."""

    device: str
    broker: str | None
    data_dir: str | None
    sources: tuple[str, ...]
    presets: tuple[str, ...]
    topic: str
    maps: Path | None
    devices_broker: str | None
    zone: str
    password_file: Path | None
    claim: str
    server: str
    force: bool
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    fingerprint: str = ""
    certificate: bool = False


def set_up(
    file: Path, said: Said, *, ask: Ask, say: Callable[[str], object], may_ask: bool
) -> None:
    """Write what is needed. `may_ask`: is there somebody who answers more than what must be said?

    Raises ConfigError, LocalError; then the configuration is not written.
    """
    if os.path.lexists(file) and not said.force:
        raise LocalError(f"{file} exists already; --force overwrites it")
    having, map_file = _having(file, said, ask, say, may_ask=may_ask)
    tables = first_sources.tables(having)
    broker, login = _login(file, said, ask)
    data_dir = said.data_dir
    if data_dir is None:
        data_dir = data_dir_of(file, is_root=os.geteuid() == 0)
    text = configuration_text(said.device, broker, data_dir, (), tables=tables, login=login)
    if map_file is not None:
        durable_file.replace(map_file, having.maps_text.encode())
    write_new(file, text, replace=said.force)


def data_dir_of(file: Path, *, is_root: bool) -> str:
    """The folder of the log where nobody names one: a folder that its owner may write to."""
    return SYSTEM_DATA_DIR if is_root else str(file.absolute().with_name("edgewake-data"))


def _having(
    file: Path, said: Said, ask: Ask, say: Callable[[str], object], *, may_ask: bool
) -> tuple[Having, Path | None]:
    """What there is to read, and the map file to write for it."""
    is_said = bool(said.sources or said.presets or said.topic or said.maps)
    found = Having(kinds=said.sources, presets=said.presets)
    if not is_said and may_ask:
        for number, (word, about) in enumerate(first_sources.choices(), 1):
            say(f"{number:>3}  {word:<18} {about}")
        found = first_sources.chosen(
            ask("What do you have? Numbers or words, with commas", default="host_metrics")
        )
        if OWN_TOPICS in found.kinds:
            topic = ask(
                "Topics, with {device} and names of your own in place of levels",
                default="home/{device}/{value}",
            )
            said = replace(said, topic=topic)
            kinds = tuple(kind for kind in found.kinds if kind != OWN_TOPICS)
            found = replace(found, kinds=kinds)
        found = replace(found, answers=_answers(found.kinds, ask))
    elif not is_said:
        found = Having(kinds=("host_metrics",))
    maps, text, new = "", "", None
    if said.topic and said.maps is not None:
        raise LocalError("expected one of --topic and --maps")
    if said.maps is not None:
        maps, text = str(said.maps.absolute()), _read(said.maps)
    elif said.topic:
        new = file.absolute().with_suffix(".maps.toml")
        if new.exists() and not said.force:
            raise LocalError(f"{new} exists already; --force overwrites it")
        maps, text = str(new), first_sources.first_map(said.topic)
    broker = said.devices_broker
    has_broker = bool(found.presets or maps or first_sources.SPARKPLUG in found.kinds)
    if broker is None and may_ask and has_broker:
        broker = ask("Broker that these devices publish to, host:port", default=BROKER)
    return (
        replace(found, broker=broker or BROKER, maps=maps, maps_text=text, zone=said.zone),
        new,
    )


def _answers(kinds: Sequence[str], ask: Ask) -> dict[str, str]:
    """Kind → where such a thing is."""
    return {
        kind: ask(first_sources.QUESTIONS[kind][1], default=first_sources.place_of(kind))
        for kind in kinds
        if kind in first_sources.QUESTIONS
    }


def _login(file: Path, said: Said, ask: Ask) -> tuple[str, Login]:
    """The broker, and what the device shows there; a claim code is used up for it."""
    if (said.cert_file is None) != (said.key_file is None):
        raise LocalError("--cert-file and --key-file belong together")
    if not said.claim:
        if said.certificate or said.fingerprint:
            raise LocalError("--certificate and --fingerprint: expected --claim with them")
        broker = said.broker or ask("MQTT broker, host:port", default=BROKER)
        return broker, Login(
            password_file=_text(said.password_file),
            ca_file=_text(said.ca_file),
            cert_file=_text(said.cert_file),
            key_file=_text(said.key_file),
        )
    if not is_device(said.device):
        raise LocalError(
            f"device {said.device!r}: expected 1-64 of A-Z a-z 0-9 . _ -, a letter or digit first"
        )
    given, login = _enrolled(file, said)
    broker = said.broker or given.broker or ask("MQTT broker, host:port", default=BROKER)
    return broker, login


def _enrolled(file: Path, said: Said) -> tuple[Enrolled, Login]:
    """Write what the server gave into files at once: the code is used up, secrets show once."""
    from edgewake.edge.commands import enrolling

    try:
        durable_file.check(file)  # before the code is used up
    except OSError as error:
        raise LocalError(f"{file}: {error.strerror}") from error
    key_file = (said.key_file or file.with_suffix(".key")).absolute()
    request = enrolling.make_request(key_file, said.device) if said.certificate else ""
    given = enrolling.enrol(
        said.server, said.claim, said.device, fingerprint=said.fingerprint, request=request
    )
    login = Login(ca_file=_text(said.ca_file))
    if given.authority and said.ca_file is None:
        ca_file = file.with_suffix(".ca.crt").absolute()
        durable_file.replace(ca_file, given.authority.encode())
        login = replace(login, ca_file=str(ca_file))
    if given.certificate:
        cert_file = (said.cert_file or file.with_suffix(".crt")).absolute()
        durable_file.replace(cert_file, given.certificate.encode())
        return given, replace(login, cert_file=str(cert_file), key_file=str(key_file))
    path = (said.password_file or file.with_suffix(".password")).absolute()
    durable_file.replace(path, f"{given.password}\n".encode())
    return given, replace(login, password_file=str(path))


def _text(path: Path | None) -> str:
    return "" if path is None else str(path.absolute())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1).decode()
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LocalError(f"{path}: byte {error.start} is not UTF-8") from error
