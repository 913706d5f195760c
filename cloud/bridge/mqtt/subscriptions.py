"""What a bridge subscribes to, and the name of the group in which the bridges share it.

A broker deals each message of a shared subscription to one member of the group. Mosquitto 2.0
grants a subscription to anybody and applies its rules when it delivers; a member that may not have
the message has then used it up. So anybody who knows the group's name can swallow what all devices
send, and keeping them out is a matter of the name: it holds a code that only a holder of the
bridges' key can compute.

    $share/bridge-<installation>-<HMAC-SHA256(key, installation), 32 hexadecimal
    digits>/ew/v1/+/up/#

A broker keeps the subscriptions of a session, those under a key of before, too: these are given up
first, else each message would come to the session twice.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from edgewake.protocol import topics
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.topic import Crossing

KEY_BYTES_MIN: Final = 16
"""Bytes of a key at least: fewer could be guessed by trying."""
KEYS_MAX: Final = 8
"""Keys in a file: the present one and those of before, each of which costs a bridge some packets
when it connects."""
_CODE_DIGITS: Final = 32
_FORMER_FILTERS: Final = ("ew/v1/+/up/+", "ew/v1/+/status", "ew/v1/+/req/feed")
"""What sessions were subscribed to before wrong topics were heard, too."""


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Topic filters of a bridge's session."""

    wanted: Sequence[str]
    given_up: Sequence[str]
    """What a session of before may still have."""
    mapped: Sequence[str] = ()
    """Topics of the maps, which a broker may refuse without harm to the others."""
    numbered: Mapping[str, int] = field(default_factory=dict)
    """The maps' filters that overlap others, each with the number of its subscription; they are
    subscribed one after the other when all the rest are granted."""

    @property
    def all(self) -> Sequence[str]:
        """Whatever a session may have."""
        return (*self.wanted, *self.mapped, *self.numbered, *self.given_up)


def read_keys(path: Path) -> tuple[bytes, ...]:
    """The keys of a file, one on a line in hexadecimal, the present one first; `#` begins a remark.

    Raises ConfigError.
    """
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not ASCII"
        raise ConfigError(f"mqtt.share_key_file = {path}: {why}") from error
    words = list(filter(None, (line.partition("#")[0].strip() for line in lines)))
    if not 0 < len(words) <= KEYS_MAX:
        raise ConfigError(
            f"mqtt.share_key_file = {path}: {len(words)} keys: expected 1 to {KEYS_MAX}, one on a "
            "line"
        )
    try:
        keys = tuple(map(bytes.fromhex, words))
    except ValueError as error:
        raise ConfigError(
            f"mqtt.share_key_file = {path}: expected hexadecimal digits: make one with `openssl "
            "rand -hex 32`"
        ) from error
    if short := [number for number, one in enumerate(keys, 1) if len(one) < KEY_BYTES_MIN]:
        raise ConfigError(
            f"mqtt.share_key_file = {path}: key {short[0]} is short: expected {2 * KEY_BYTES_MIN} "
            "hexadecimal digits or more"
        )
    return keys


def group(installation: str, key: bytes | None) -> str:
    """The name of the group; without a key everybody knows it."""
    name = f"bridge-{installation}"
    if key is None:
        return name
    return f"{name}-{hmac.new(key, installation.encode(), sha256).hexdigest()[:_CODE_DIGITS]}"


def subscriptions(
    installation: str,
    keys: Sequence[bytes],
    mapped: Sequence[str] = (),
    former: Sequence[str] = (),
) -> Subscriptions:
    """The subscriptions of a bridge that knows these keys, the current one first.

    Without keys the group has the name that everybody knows.

    The bridges of an installation share the messages among them; those of another one get each of
    them, too. `mapped`: filters of the maps, `former`: those of maps before.
    """
    present = group(installation, keys[0] if keys else None)
    known = [group(installation, key) for key in keys]
    before = [name for name in (*known, group(installation, None)) if name != present]
    given_up = [f"$share/{name}/{pattern}" for name in before for pattern in topics.BRIDGE_FILTERS]
    given_up += [f"$share/{group(installation, None)}/{pattern}" for pattern in _FORMER_FILTERS]
    numbered = Crossing(mapped).numbered
    shared = [f"$share/{present}/{pattern}" for pattern in topics.BRIDGE_FILTERS]
    given_up += [f"$share/{present}/{pattern}" for pattern in former if pattern not in mapped]
    given_up += [f"$share/{name}/{pattern}" for name in before for pattern in mapped]
    return Subscriptions(
        (*shared, topics.bridge(installation, "+")),
        tuple(given_up),
        tuple(f"$share/{present}/{one}" for one in mapped if one not in numbered),
        {f"$share/{present}/{one}": number for one, number in numbered.items()},
    )


def client_id(installation: str, bridge: str) -> str:
    """A bridge's client id: no device can have it, for a device's name holds no colon."""
    return f"bridge:{installation}:{bridge}"
