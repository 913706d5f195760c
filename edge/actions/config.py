"""Configuration of actions: what the device does by itself about an alert.

No pushed configuration changes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from edgewake.edge.processors.config import ExpressionText, StreamName
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.names import is_device
from edgewake.protocol.plain import Check, ConfigTable, Length, TaggedBy, key

ARGUMENTS_MAX: Final = 64
"""Words of a command. More belong in a script."""
URL_CHARS_MAX: Final = 2048
"""The length that most servers accept."""
TOPIC_CHARS_MAX: Final = 256
"""Characters of a topic. Longer ones are refused."""


def _name(name: str) -> str:
    if not is_device(name):
        raise ValueError("expected 1-64 of A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command[0].startswith("/"):
        raise ValueError("expected the program's whole path first")
    if any("\0" in word for word in command):
        raise ValueError("expected no NUL")
    return command


def _http(url: str) -> str:
    # With what it needs only where there is a webhook.
    from edgewake.edge.sources.web.http_client import parse_url

    parse_url(url)
    return url


def _topic(topic: str) -> str:
    if (
        not topic
        or len(topic) > TOPIC_CHARS_MAX
        or any(char in topic for char in "#+\0")
        or topic.startswith("$")
    ):
        raise ValueError(f"expected 1-{TOPIC_CHARS_MAX} characters without # and +, no $ first")
    return topic


class ActionConfig(ConfigTable):
    """The keys that every action has."""

    name: Annotated[str, Check(_name)]
    """Its name in the status; one of its own."""
    stream: StreamName
    """The stream of alerts, of a chain, an absence rule or a source."""
    when: ExpressionText | None = None
    """Which of its readings, e.g. `active = TRUE AND rule = 'engine too hot'`; none: all."""
    expire_s: float = key(default=60.0, gt=0, le=7 * 86400)
    """Seconds after its event time for which an alert is acted on: after an outage nothing is done
    about what is long over. An alert about a window of time, which has the time of its start,
    counts from its end."""
    timeout_s: float = key(default=10.0, gt=0, le=3600)
    """Seconds that it may take; then it is ended and counted as failed."""
    pause_s: float = key(default=1.0, ge=0, le=3600)
    """Seconds between two: a flood of alerts must not become one of processes. Those that come
    meanwhile wait in the log until they are too old."""


class CommandActionConfig(ActionConfig):
    """A program of this machine is run; the alert is on its standard input, as JSON."""

    type: Literal["command"]
    command: Annotated[tuple[str, ...], Length(1, ARGUMENTS_MAX), Check(_program)]
    """The program, by its whole path, and its arguments, always the same. No shell is between."""
    user: str = "nobody"
    """User that runs it where the agent is root; elsewhere the agent's own user does."""


class WebhookActionConfig(ActionConfig):
    """The alert is posted to a server, as JSON."""

    type: Literal["webhook"]
    url: Annotated[str, Length(0, URL_CHARS_MAX), Check(_http)]
    """Where to. A redirection is not followed: it counts as failed."""
    ca_file: Path | None = None
    """PEM of the authority that signed the server's certificate; none: those that the system
    knows."""
    token_file: Path | None = None
    """File whose first line is sent as `Authorization: Bearer …`, mode 0600."""


class MqttActionConfig(ActionConfig):
    """The alert is published on a broker, as JSON: one nearby works while the cloud is away."""

    type: Literal["mqtt"]
    topic: Annotated[str, Check(_topic)]
    """The topic, always the same."""
    broker: BrokerConfig = BrokerConfig()
    """Where to, with the keys of `[mqtt]`."""
    retain: bool = False
    """Does the broker keep it for those who come later?"""


AnyAction = Annotated[
    CommandActionConfig | WebhookActionConfig | MqttActionConfig, TaggedBy("type")
]
