"""The examples of docs/rights.md do what the page says."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.feeds import FeedConfig
from edgewake.cloud.rights.principal import Action, Principal, Proof
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.roles import Roles
from edgewake.protocol import config as config_file
from edgewake.protocol.ops.proof import Kind
from tests.house.source import ROOT
from tests.push.builders import ManualClock
from tests.rights.forge import NOW_S, Maker, key_set

PAGE = (ROOT / "docs" / "rights.md").read_text()
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_is_a_configuration(block: str) -> None:
    if block.startswith("# bridge.toml"):
        bridge = config_file.parse(BridgeConfig, tomllib.loads(block), "docs/rights.md")
        assert bridge.feed.key_file is not None
        return
    found = config_file.parse(AccessConfig, tomllib.loads(block), "docs/rights.md")
    assert found.rights is not None


async def test_a_device_follows_its_own_and_the_weather() -> None:
    block = next(one for one in BLOCKS if "[[rights.devices]]" in one)
    settings = config_file.parse(AccessConfig, tomllib.loads(block), "docs/rights.md").rights
    assert settings is not None
    roles = Roles(settings)
    grants = roles.grants("bridge", {})
    bridge = Principal("bridge-1", grants, Proof(Kind.KEY))
    assert (bridge.may_feed("car-7"), bridge.may(Action.READ, "weather_now")) == (True, False)
    car = Principal("car-7", roles.grants_of_device("car-7"), Proof(Kind.KEY))
    assert car.may(Action.READ, "weather_now")
    assert car.sees_on("car-7", "vehicle_position")
    assert not car.sees_on("car-8", "vehicle_position")
    assert roles.grants_of_device("van-7") == ()


async def test_the_app_of_one_vehicles_owner_is_given_exactly_that_vehicle() -> None:
    settings = config_file.parse(AccessConfig, tomllib.loads(BLOCKS[0]), "docs/rights.md").rights
    assert settings is not None
    maker = Maker()

    async def ask(url: str) -> bytes:
        assert url == settings.issuers[0].jwks_url
        return key_set(maker).encode()

    rights = Rights(settings, ManualClock(round(NOW_S * 1000)), ask)
    said: dict[str, Any] = {
        "iss": settings.issuers[0].issuer,
        "edgewake_role": "owner",
        "device": "car-7",
    }
    owner = await rights.principal(maker.token(**said))
    scope = owner.scope(Action.READ, "vehicle_position")
    assert scope is not None
    event = {"device": "car-7", "seq": 1, "lat": 1.5, "speed_kmh": 50, "owner_name": "Anna"}
    assert scope.cut(event, is_result=False) == {
        "device": "car-7",
        "seq": 1,
        "lat": 1.5,
        "speed_kmh": 50,
    }
    assert scope.cut(event | {"device": "car-8"}, is_result=False) is None
    assert not owner.may(Action.READ, "vehicle_alerts")
    assert owner.scope(Action.READ, "weather_now") is None
    assert not owner.may(Action.WAKE, "weather_now")
    assert (owner.limits.streams_max, owner.limits.leases_max) == (5, 3)
    assert rights.anonymous is None


def test_what_the_page_names_is_there() -> None:
    """Keys of configurations, roles and events."""
    assert "key_file" in FeedConfig.model_fields
    for key in re.findall(r"`([a-z]+_[a-z_]+)`", PAGE):
        known = str(AccessConfig.model_json_schema()) + "edgewake_reader key_expired key_revoked"
        known += " authorization_details"
        assert key in known, key
