"""Makes a part's desk from its configuration."""

from __future__ import annotations

import os
import secrets

from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.desk import Desk
from edgewake.protocol.clock import Clock

SECRET_BYTES = 32


def desk_of(config: LoginConfig | None, clock: Clock) -> Desk | None:
    """None where people cannot log in. Raises ConfigError."""
    if config is None:
        return None
    # Its libraries cost memory, and where nobody logs in they are not needed.
    from edgewake.cloud.login.provider import Provider

    return Desk(
        config,
        Provider(config, clock),
        clock,
        secret=lambda: secrets.token_urlsafe(SECRET_BYTES),
        random_bytes=os.urandom,
    )
