"""Names of members of consumer groups (`group.instance.id`): each is one process's at a time.

A process that comes back under its name has what it had, without a rebalance. Of two processes of
one name the group fences the earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.kafka")

FORGOTTEN_S: Final = 4.0
"""Seconds after the end of a session within which the group has forgotten a member for certain."""
DESCRIBE_TIMEOUT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.1


def is_fenced(error: KafkaError) -> bool:
    """Does the group say that another member has our name? A consumer's only fatal error.

    As an event it is not marked as fatal: whoever looks at `fatal()` alone stays a member that gets
    nothing, for ever.
    """
    return error.fatal() or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)


def is_in_use(
    config: KafkaConfig,
    group: str,
    name: str,
    *,
    session_s: float,
    clock: Clock,
    pause: Callable[[float], object],
) -> bool:
    """Does a member with our name live? Call it while we are not a member.

    The group forgets a dead one after `session_s`. A Kafka that was killed just after we joined may
    know us only as we were before, and fences us although nobody took our name.
    """
    admin = clients.admin(config)
    until_s = clock.monotonic_s() + session_s + FORGOTTEN_S
    while clock.monotonic_s() < until_s:
        try:
            found = admin.describe_consumer_groups([group], request_timeout=DESCRIBE_TIMEOUT_S)
            if all(one.group_instance_id != name for one in found[group].result().members):
                return False
        except KafkaException as error:
            log.debug("the group does not answer: %s", error.args[0].str())
        pause(LOOK_EVERY_S)
    return True
