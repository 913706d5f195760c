"""`edgewake up --listen`: the machine's address, first credentials, and what to print.

The latter is for the phone and the next machine.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edgewake.deploy import authority, secret_files
from edgewake.deploy.plan import Plan, http_url
from edgewake.deploy.thrown_out import ThrowOut
from edgewake.protocol.certificates import authority as authorities
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, LocalError
from edgewake.protocol.installation import key_of

AUTO: Final = "auto"
FIRST_DEVICE: Final = "device-1"
FIRST_STREAM: Final = "hello"
READING: Final = '{"temperature": 21.5}'
AUTHORITY_FILE: Final = "edgewake-ca.crt"
"""How other machines call what they trust."""
SOMEWHERE: Final = "192.0.2.1"
"""An address of the documentation (RFC 5737): a UDP socket that is connected to it sends nothing,
and has the address by which this machine leaves."""
TIMEOUT_S: Final = 10.0
LOOK_S: Final = 1.0
"""Seconds between two looks at the passwords."""


def address(said: str) -> str:
    """The address to listen on; `auto`: the one by which this machine reaches others.

    Raises ConfigError for what is not an address, or stands for several; LocalError for one that
    this machine does not have.
    """
    if said == AUTO:
        return _own_address()
    try:
        found = ipaddress.ip_address(said)
    except ValueError:
        raise ConfigError(
            f"--listen {said}: expected an address of this machine, such as 192.168.1.5, or auto"
        ) from None
    if found.is_unspecified or found.is_loopback:
        raise ConfigError(
            f"--listen {said}: expected one address of the local network, such as 192.168.1.5: "
            "this machine itself needs none, and for all of its networks see docs/production.md"
        )
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((said, 0))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise LocalError(f"--listen {said}: {error.strerror}") from error
            raise LocalError(
                f"--listen {said}: this machine has no such address; `ip -brief address` lists "
                "them, and `--listen auto` takes the one by which it reaches others"
            ) from error
    return str(found)


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((SOMEWHERE, 9))
        except OSError as error:
            raise LocalError(
                f"--listen auto: this machine reaches no network ({error.strerror}); give the "
                "address, such as --listen 192.168.1.5"
            ) from error
        return str(probe.getsockname()[0])


def prepare(plan: Plan, clock: Clock) -> None:
    """A key that reads, and who signs certificates, made once. Raises LocalError."""
    if plan.encrypted:
        authority.prepare(plan.authority, plan.listen, now_ms=clock.now_ms())
    key = secret_files.ensure(plan.reader_key_file, secret_files.reader_key()).strip()
    try:
        plan.readers_file.unlink(missing_ok=True)
    except OSError as error:
        raise LocalError(f"{plan.readers_file}: {error.strerror}") from error
    secret_files.ensure(plan.readers_file, f"network everything {key}\n")


def ensure_first_device(plan: Plan, ops_url: str) -> None:
    """A device with a password to begin with, by the operations API that runs; made once.

    One that was revoked, or that somebody made himself, is left as it is, and nothing of it is
    printed.
    """
    if plan.first_device_file.exists() or not plan.has("ops"):
        return
    request = urllib.request.Request(  # noqa: S310  (our own address)
        f"{ops_url}/v1/credentials",
        data=json.dumps({"devices": [FIRST_DEVICE]}).encode(),
        headers={
            "Authorization": f"Bearer {key_of(plan.ops_key_file)}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            password = str(json.load(answer)["items"][0]["password"])
        secret_files.ensure(plan.first_device_file, f"{password}\n")
    except (OSError, ValueError, LookupError, LocalError):
        return


def page_link(plan: Plan) -> str:
    """What the phone opens. The key is behind the #, which no browser sends."""
    key = plan.reader_key_file.read_text("ascii").strip()
    return f"{_scheme(plan)}://{_host(plan.listen)}:{plan.ports.access(0)}/#key={key}"


def qr_code(text: str) -> str:
    """As lines of half blocks, dark on light whatever the terminal's colours."""
    import io

    import segno

    out = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(out, border=2, compact=True)
    return out.getvalue().rstrip("\n")


def lines(plan: Plan) -> list[str]:
    """What is printed: the phone's code, one line that sends, the next machine's configuration."""
    found = ["", f"Open to the local network on {plan.listen}, to who has a key or a password."]
    if plan.plain:
        found.append("Nothing is encrypted there: use it in a network that you trust.")
    if plan.has("access"):
        link = page_link(plan)
        found += ["  on the phone", *(f"    {line}" for line in qr_code(link).split("\n"))]
        found.append(f"    {link}")
    if plan.encrypted:
        found += _authority_lines(plan)
    if plan.has("mosquitto"):
        found += _device_lines(plan)
    if plan.has("push"):
        url = f"{_scheme(plan)}://{_host(plan.listen)}:{plan.ports.push}/"
        found.append(f"  push              {url} (the same key)")
    return found


def _authority_lines(plan: Plan) -> list[str]:
    """By what the phone and other machines know that it is us."""
    files = plan.authority
    shown = authorities.fingerprint_of(files.server_certificate.read_text("ascii"))
    return [
        "    No public authority signs addresses of a home, so the phone warns once. The",
        "    certificate is ours if its SHA-256 is",
        f"    {_in_groups(shown)}",
        "  the CA that other machines trust: paste this there",
        # Not indented: the shell looks for END alone.
        f"cat > {AUTHORITY_FILE} <<END",
        *files.certificate.read_text("ascii").strip().split("\n"),
        "END",
        f"  its fingerprint   {authority.read(files).fingerprint}",
    ]


def _in_groups(digits: str) -> str:
    """As browsers show it."""
    return " ".join(digits[at : at + 4].upper() for at in range(0, len(digits), 4))


def _device_lines(plan: Plan) -> list[str]:
    found = []
    try:
        password = plan.first_device_file.read_text("ascii").strip()
    except OSError:
        password = ""
    if password:
        found += [
            "  a reading from another machine",
            f"    {mosquitto_pub(plan, FIRST_DEVICE, password)}",
            *([f"    {curl(plan, FIRST_DEVICE, password)}"] if plan.has("bridge") else []),
            "  or with an agent there: agent.toml, and the password alone in device.password",
            *(f"    {line}" for line in agent_configuration(plan, FIRST_DEVICE).split("\n")),
        ]
    found.append("  more devices      edgewake devices add NAME; edgewake devices claim")
    return found


def mosquitto_pub(plan: Plan, device: str, password: str) -> str:
    """One line that sends a reading from another machine."""
    trusted = f"--cafile {AUTHORITY_FILE} " if plan.encrypted else ""
    return (
        f"mosquitto_pub -h {plan.listen} -p {plan.ports.mqtt} {trusted}-u {device} -P {password} "
        f"-q 1 -t ew/v1/{device}/up/{FIRST_STREAM} -m '{READING}'"
    )


def curl(plan: Plan, device: str, password: str) -> str:
    """The command that sends a first reading by HTTP, for a device without MQTT."""
    trusted = f"--cacert {AUTHORITY_FILE} " if plan.encrypted else ""
    path = f"/ew/v1/{device}/up/{FIRST_STREAM}"
    return f"curl {trusted}-u {device}:{password} -d '{READING}' {http_url(plan)}{path}"


def agent_configuration(plan: Plan, device: str) -> str:
    """An agent of another machine that says how that machine is."""
    trusted = f'\nca_file = "{AUTHORITY_FILE}"' if plan.encrypted else ""
    return f"""device = "{device}"
data_dir = "edgewake-data"
[mqtt]
host = "{plan.listen}"
port = {plan.ports.mqtt}{trusted}
username = "{device}"
password_file = "device.password"
[[source]]
type = "host_metrics"
stream = "host_metrics\""""


async def reload_at_change(plan: Plan, reload: Callable[[], None], clock: Clock) -> None:
    """Have the broker reload passwords and revoked certificates when they change.

    Connections without a valid one end.
    """
    files = (plan.password_file, plan.authority.revoked)
    seen = [_stamp(file) for file in files]
    throw_out = ThrowOut(plan.book_file, plan.ports.mqtt, clock)
    async with asyncio.TaskGroup() as tasks:
        while True:
            await clock.sleep(LOOK_S)
            now = [_stamp(file) for file in files]
            if now != seen:
                seen = now
                reload()
            if devices := throw_out.devices():
                tasks.create_task(throw_out.end(devices), name="throw-out")


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _scheme(plan: Plan) -> str:
    return "https" if plan.encrypted else "http"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
