"""The examples of docs/gateways.md."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from edgewake.cloud.bridge.admission.gateways import Gateways
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.edge.config import AgentConfig

TEXT = (Path(__file__).parents[2] / "docs/gateways.md").read_text("utf-8")


def example(name: str) -> dict[str, object]:
    found = re.search(rf"<!-- example: {name} -->\n```toml\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None, name
    return tomllib.loads(found[1])


def test_the_gateways_configuration_is_one_and_its_command_is_for_things() -> None:
    config = AgentConfig.checked(
        example("gateway") | example("gateway command") | example("gateway chain")
    )
    assert config.streams_of_things == {"power", "power_minute", "alerts"}
    assert config.source[0].things == "devices"
    assert config.downlink.command["open_valve"].is_for_things


def test_a_gateway_whose_things_ask_has_their_replies_by_thing() -> None:
    config = AgentConfig.checked(example("gateway requests") | {"device": "gw", "data_dir": "/tmp"})
    assert config.streams_of_things == {"device_requests", "ew_replies"}


def test_a_gateway_that_follows_for_its_things_keeps_it_by_thing() -> None:
    config = AgentConfig.checked(example("gateway feed") | {"device": "gw", "data_dir": "/tmp"})
    assert config.streams_of_things == {"limits_here"}
    (source,) = config.source
    assert (source.rename, source.send) == ({"of_device": "thing"}, False)


def test_the_rules_allow_what_the_page_says() -> None:
    rules = BridgeConfig.model_validate(example("gateway rules")).gateway
    for knows_devices in (True, False):
        gateways = Gateways(rules, knows_devices=knows_devices)
        assert gateways.may_speak("gw-hall-1", "meter-7")
        assert not gateways.may_speak("gw-hall-1", "pump-7")
        assert not gateways.may_speak("gw-yard-1", "meter-7")
    assert Gateways((), knows_devices=False).may_speak("any", "thing")
    assert not Gateways((), knows_devices=True).may_speak("any", "thing")
