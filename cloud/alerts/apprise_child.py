"""A process that sends one note by Apprise, and ends: 0 where it was taken, else 1 with the reason.

An Apprise address chooses one of a hundred services, so the hosts that it will connect to cannot be
read from it. Therefore each connection is checked at the moment it is made, by Python's audit hook,
which no library goes around: the address must be a public one and its port one that such services
have. Hosts that the operator allowed may have any. Other programs are not started.
"""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any, Final

import orjson

from edgewake.cloud.calls.endpoint import is_public

PORTS: Final = frozenset({25, 443, 465, 587, 993, 2525, 8443, 8883})
"""Ports of mail, HTTPS and MQTT over TLS."""
_PROGRAMS: Final = ("subprocess.", "os.exec", "os.spawn", "os.posix_spawn", "os.system", "os.fork")


class ConnectionRefused(RuntimeError):
    """A connection to where none may go."""


def guard(allowed: frozenset[str], refused: list[str]) -> None:
    """Restrict this process to connections to public addresses and `allowed` ones.

    Refused connections are noted in `refused`: libraries hide why they failed.
    """

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_PROGRAMS):
            refused.append("it would start a program")
            raise ConnectionRefused(refused[-1])
        if event in ("socket.connect", "socket.sendto"):
            why = _why_not(arguments[0], arguments[1], allowed)
            if why:
                refused.append(why)
                raise ConnectionRefused(why)

    sys.addaudithook(look)


def _why_not(connection: socket.socket, address: Any, allowed: frozenset[str]) -> str:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return f"{address!r}: no address of the internet"
    host, port = str(address[0]), address[1]
    if host in allowed:
        return ""
    if not is_public(host):
        return f"{host}: not a public address (alert_hosts of the configuration allows hosts)"
    return "" if port in PORTS else f"port {port}: expected one of mail, HTTPS or MQTT over TLS"


def addresses_of(hosts: list[str]) -> frozenset[str]:
    """All addresses of these hosts."""
    found: set[str] = set(hosts)
    for host in hosts:
        try:
            found |= {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
        except OSError:
            continue  # then nothing of it can be connected to either
    return frozenset(found)


def main() -> int:
    """Read what is to be sent from standard input."""
    import apprise

    asked = orjson.loads(sys.stdin.buffer.read())
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("apprise").addHandler(handler)
    logging.getLogger("apprise").setLevel(logging.WARNING)
    refused: list[str] = []
    guard(addresses_of(asked["allow_hosts"]), refused)
    kinds = {"info": "info", "warning": "warning", "critical": "failure"}
    notifier = apprise.Apprise()
    notifier.add(asked["address"])
    is_sent = notifier.notify(
        body=asked["body"],
        title=asked["title"],
        notify_type=kinds[asked["severity"]],
        body_format="text",
        interpret_escapes=False,
    )
    if is_sent:
        return 0
    why = "; ".join(dict.fromkeys([*refused, *said]))
    sys.stdout.write(why or "Apprise did not send it, and does not say why")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
