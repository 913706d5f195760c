"""Which paths of the operations API somebody reaches: by a role, or by the actions of its grants.

A path that is not in the table shows or changes the whole system. So a route that is added is not
reached by grants until somebody has narrowed it, and written it down here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from edgewake.cloud.ops.login.keys import Holder, Role
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.web.http_part import Problem

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_AFFAIRS: Final = frozenset({"/v1/tickets", "/v1/session", "/v1/sql"})
"""Questions, and changes that concern nobody but who asks; the role `read` suffices."""

NARROWED: Final[Mapping[str, Action]] = {
    "GET /v1/streams": Action.READ,
    "GET /v1/streams/{name}": Action.READ,
    "GET /v1/streams/{name}/gaps": Action.READ,
    "GET /v1/streams/{name}/retention": Action.READ,
    "GET /v1/devices": Action.READ,
    "GET /v1/devices/{device}": Action.READ,
    "POST /v1/sql": Action.ASK,
    "GET /v1/streams/{name}/summary": Action.ASK,
    "GET /v1/summaries": Action.ASK,
    "GET /v1/summaries/{stream}/{field}": Action.ASK,
    "GET /v1/summaries/{stream}/{field}/compare": Action.ASK,
    "POST /v1/devices/{device}/commands": Action.COMMAND,
    "GET /v1/devices/{device}/commands": Action.COMMAND,
    "GET /v1/devices/{device}/commands/{command_id}": Action.COMMAND,
    "GET /v1/requests": Action.COMMAND,
    "GET /v1/devices/{device}/requests/{request_id}": Action.COMMAND,
    "POST /v1/devices/{device}/requests/{request_id}/reply": Action.COMMAND,
}
"""The routes that show and do no more than the grants with this action allow."""
OWN: Final = frozenset(
    {"GET /", "GET /docs", "GET /docs/{file}", "GET /v1/session", "DELETE /v1/session",
     "POST /v1/tickets"}
)  # fmt: skip
"""What concerns nobody but who asks, or shows nothing of the system."""


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", template)
    return re.compile("[^/]+".join(map(re.escape, parts)))


_NARROWED: Final = [(_pattern(template), action) for template, action in NARROWED.items()]
_OWN: Final = [_pattern(template) for template in OWN]


def refusal(holder: Holder, method: str, path: str) -> Problem | None:
    """Why it may not ask this; None: it may."""
    if holder.role is Role.OPERATE:
        return None
    asked = f"{'GET' if method == 'HEAD' else method} {path}"
    needed = next((action for found, action in _NARROWED if found.fullmatch(asked)), None)
    has_grant = (
        needed is not None and holder.principal is not None and holder.principal.holds(needed)
    )
    if holder.role is Role.READ:
        may = method in SAFE_METHODS or path in OWN_AFFAIRS or has_grant
        return None if may else _refused(f"{holder.name!r} has the role read; this needs the role "
                                         "operate")  # fmt: skip
    if has_grant or any(found.fullmatch(asked) for found in _OWN):
        return None
    if needed is not None:
        return _refused(f"{holder.name!r} has no grant with the action {needed}")
    action = Action.VIEW if method in SAFE_METHODS else Action.OPERATE
    return _refused(
        f"{holder.name!r} has grants of some streams or devices, and this is of the whole system, "
        f"which nothing narrows: it needs the action {action}"
    )


def _refused(detail: str) -> Problem:
    return Problem(403, "role", detail)
