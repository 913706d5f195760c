"""What a person's groups give at the operations API: a role of its own, or what grants reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgewake.cloud.login.session import Session
from edgewake.cloud.ops.login.keys import Role
from edgewake.cloud.ops.login.people import People
from edgewake.cloud.ops.login.reach import refusal
from edgewake.cloud.rights.config import GrantConfig, RightsConfig, RoleConfig
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.roles import Roles
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.errors import ConfigError

ROLES = Roles(
    RightsConfig(
        roles={
            "owner": RoleConfig(
                grants=(
                    GrantConfig(streams=("s",), devices=("$device",)),
                    GrantConfig(actions=(Action.COMMAND,), devices=("$device",)),
                )
            ),
            "admin": RoleConfig(grants=(GrantConfig(actions=(Action.OPERATE,)),)),
        }
    )
)
GROUPS = {"owners": "owner", "watchers": "read", "admins": "admin", "control": "operate"}


def people(groups: dict[str, str] = GROUPS, claims: tuple[str, ...] = ("device",)) -> People:
    config = SimpleNamespace(groups=groups, claims=claims, issuer="https://login.example.org")
    return People(SimpleNamespace(config=config), ROLES)  # type: ignore[arg-type]


def session(*groups: str, **claims: Any) -> Session:
    return Session("id", "anna", "Anna", groups, claims, 2, 2, 1)


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["owners"], Role.GRANTS),
        (["owners", "watchers"], Role.READ),
        (["admins"], Role.OPERATE),
        (["owners", "control"], Role.OPERATE),
    ],
)
def test_the_widest_of_several_groups_counts(groups: list[str], role: Role) -> None:
    holder = people().holder(session(*groups, device="car-1"))
    assert (holder.name, holder.role) == ("Anna (anna)", role)


def test_who_has_grants_reaches_what_they_name() -> None:
    holder = people().holder(session("owners", device="car-1"))
    reader = holder.reader()
    assert reader is not None
    assert reader.name == "https://login.example.org#anna"
    assert [reader.sees_on(device, "s") for device in ("car-1", "car-2")] == [True, False]
    assert refusal(holder, "GET", "/v1/streams/s") is None
    assert refusal(holder, "GET", "/v1/overview") is not None


def test_who_sees_all_commands_what_its_grants_name() -> None:
    holder = people().holder(session("owners", "watchers", device="car-1"))
    assert holder.reader() is None
    assert refusal(holder, "POST", "/v1/devices/car-2/commands") is None
    reader = holder.reader(is_change=True)
    assert reader is not None
    assert [reader.may_command(device) for device in ("car-1", "car-2")] == [True, False]
    assert refusal(holder, "DELETE", "/v1/streams/s") is not None


def test_a_person_without_the_claim_of_its_role_is_told_so() -> None:
    with pytest.raises(Problem, match="device"):
        people().holder(session("owners"))


@pytest.mark.parametrize(
    ("groups", "claims", "why"),
    [({"g": "nothing"}, ("device",), "or one of rights.roles"), ({"g": "owner"}, (), "needs")],
)
def test_a_group_whose_role_is_not_there_is_refused_at_the_start(
    groups: dict[str, str], claims: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        people(groups, claims)
