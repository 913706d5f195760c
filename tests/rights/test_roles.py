"""Roles become grants, for who has the claims that they need."""

from __future__ import annotations

import pytest

from edgewake.cloud.rights.config import (
    EVERYTHING,
    DeviceRule,
    GrantConfig,
    RightsConfig,
    RoleConfig,
)
from edgewake.cloud.rights.principal import ALL, Action
from edgewake.cloud.rights.roles import CLAIM_VALUES_MAX, NoRights, Roles

ROLES = Roles(
    RightsConfig(
        roles={
            "owner": RoleConfig(
                grants=(GrantConfig(streams=("s",), devices=("demo-*", "$device")),), leases_max=7
            )
        }
    )
)


def test_a_claim_names_devices_beside_those_of_the_role() -> None:
    assert ROLES.claims("owner") == {"device"}
    for claim in ("car-7", ["car-7"]):
        (grant,) = ROLES.grants("owner", {"device": claim})
        assert grant.devices is not None
        seen = [one for one in ("car-7", "car-8", "demo-1") if one in grant.devices]
        assert seen == ["car-7", "demo-1"]


@pytest.mark.parametrize(
    "claim", [None, "", [], "car-*", ["car-7", 8], ["car-7", "*"], {"car-7": 1}, 7,
              [f"car-{n}" for n in range(CLAIM_VALUES_MAX + 1)]],
)  # fmt: skip
def test_a_claim_that_names_no_devices_gives_no_rights_at_all(claim: object) -> None:
    with pytest.raises(NoRights, match="claim 'device'"):
        ROLES.grants("owner", {"device": claim})


def test_everything_is_a_role_that_nobody_has_to_declare() -> None:
    assert [name in ROLES for name in ("owner", EVERYTHING, "other")] == [True, True, False]
    assert ROLES.grants(EVERYTHING, {}) == (ALL,)
    assert (ROLES.limits("owner").leases_max, ROLES.claims(EVERYTHING)) == (7, frozenset())


@pytest.mark.parametrize(
    ("grant", "why"),
    [
        ({"actions": ["command"], "devices": ["d"], "streams": ["s"]}, "command has a grant"),
        ({"actions": ["command"], "fields": ["f"]}, "command has a grant"),
        ({"actions": ["command", "read"], "streams": ["s"]}, "command has a grant"),
        ({"actions": ["feed"], "devices": ["d"], "streams": ["s"]}, "feed has a grant"),
        ({"actions": ["feed", "command"]}, "has a grant of its own"),
        ({"actions": ["view"], "devices": ["d"]}, "nothing narrows them"),
        ({"actions": ["operate"], "fields": ["f"]}, "nothing narrows them"),
        ({"actions": ["operate"], "streams": ["s"]}, "nothing narrows them"),
        ({"actions": ["view", "read"], "streams": ["*"]}, "nothing narrows them"),
        ({"actions": ["ask"]}, "expected streams, publications or sets"),
    ],
)
def test_what_would_not_be_enforced_is_not_accepted(grant: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        GrantConfig.model_validate(grant)


@pytest.mark.parametrize(
    "grant",
    [
        {"actions": ["command"]},
        {"actions": ["command"], "devices": ["$device", "bus-*"]},
        {"actions": ["feed"], "devices": ["bus-*"]},
        {"actions": ["view", "operate"]},
        {"actions": ["ask", "read"], "streams": ["s"], "devices": ["d"], "fields": ["f"]},
    ],
)
def test_what_is_enforced_is_accepted(grant: dict[str, object]) -> None:
    assert set(GrantConfig.model_validate(grant).actions) == set(grant["actions"])  # type: ignore[call-overload]


def test_the_role_everything_neither_operates_nor_commands() -> None:
    """It is the role of readers: who has it must not become an operator by an update."""
    (grant,) = ROLES.grants(EVERYTHING, {})
    assert grant.actions == {Action.READ, Action.WAKE, Action.ASK}


def test_a_device_reads_what_all_rules_that_name_it_give_and_does_nothing_else() -> None:
    own = GrantConfig(streams=("s",), devices=("$device",), fields=("f",))
    config = RightsConfig(
        roles={
            "own": RoleConfig(grants=(own,)),
            "more": RoleConfig(
                grants=(
                    GrantConfig(streams=("t",), actions=(Action.ASK, Action.READ)),
                    GrantConfig(streams=("u",), actions=(Action.WAKE,)),
                    GrantConfig(actions=(Action.OPERATE,)),
                )
            ),
        },
        devices=(DeviceRule(role="own"), DeviceRule(devices=("bus-*",), role="more")),
    )
    roles = Roles(config)
    car, bus = roles.grants_of_device("car-7"), roles.grants_of_device("bus-7")
    assert [grant.streams.texts for grant in (*car, *bus)] == [["s"], ["s"], ["t"]]
    assert {grant.actions for grant in (*car, *bus)} == {frozenset({Action.READ})}
    for grant, name in ((car[0], "car-7"), (bus[0], "bus-7")):
        assert grant.devices is not None
        assert grant.devices.texts == [name]


def test_a_device_has_no_claim_but_its_name() -> None:
    role = RoleConfig(grants=(GrantConfig(streams=("s",), devices=("$city",)),))
    with pytest.raises(ValueError, match="a device has no claim 'city'"):
        RightsConfig(roles={"r": role}, devices=(DeviceRule(role="r"),))
    with pytest.raises(ValueError, match=r"devices.role = 'q': expected one of everything"):
        RightsConfig(devices=(DeviceRule(role="q"),))
