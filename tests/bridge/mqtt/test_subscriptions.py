"""The name of the group in which bridges share messages, and what a session of before gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.bridge.mqtt.subscriptions import group, read_keys, subscriptions
from edgewake.protocol import topics
from edgewake.protocol.errors import ConfigError

KEYS = (bytes(range(32)), bytes(range(1, 33)))


def test_a_name_needs_the_key_and_is_another_for_each_installation() -> None:
    names = {
        group(installation, key) for installation in ("edgewake", "second") for key in (*KEYS, None)
    }
    assert len(names) == 6
    assert group("edgewake", None) == "bridge-edgewake"
    assert not set("/+#") & set("".join(names))


def test_all_is_shared_under_the_present_key_and_the_rest_is_given_up() -> None:
    found = subscriptions("edgewake", KEYS)
    assert [one for one in found.wanted if one.startswith("$share/")] == [
        f"$share/{group('edgewake', KEYS[0])}/{pattern}" for pattern in topics.BRIDGE_FILTERS
    ]
    assert found.wanted[-1] == "ew/bridges/edgewake/+"
    assert {one.split("/")[1] for one in found.given_up} == {
        group("edgewake", KEYS[1]),
        group("edgewake", None),
    }
    assert not set(found.wanted) & set(found.given_up)
    assert not set(subscriptions("edgewake", ()).wanted) & set(
        subscriptions("edgewake", ()).given_up
    )


def test_a_key_file_has_one_key_a_line_the_present_one_first(tmp_path: Path) -> None:
    file = tmp_path / "share.key"
    file.write_text(f"# made by openssl\n{KEYS[0].hex()}  # since May\n\n{KEYS[1].hex()}\n")
    assert read_keys(file) == KEYS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 keys: expected 1 to 8"),
        ("no hex", "expected hexadecimal digits: make one with `openssl rand -hex 32`"),
        ("00" * 16 + "\n" + "00" * 8, "key 2 is short: expected 32 hexadecimal digits or more"),
        ("00" * 16 + "\n" + ("00" * 16 + "\n") * 8, "9 keys: expected 1 to 8"),
        ("é", "is not ASCII"),
    ],
)
def test_a_bad_key_file_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "share.key"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"mqtt\.share_key_file = ") as failed:
        read_keys(file)
    assert said in str(failed.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_keys(tmp_path / "none")


def test_a_broker_that_knows_its_clients_needs_the_key() -> None:
    with pytest.raises(ValueError, match="share_key_file is missing: a device that knows the name"):
        MqttConfig(username="bridge-1")
    with pytest.raises(ValueError, match="share_key_file is missing"):
        MqttConfig(ca_file=Path("ca.pem"))
    assert MqttConfig(username="bridge-1", share_key_file=Path("share.key")).share_key_file == Path(
        "share.key"
    )
    assert MqttConfig().share_key_file is None
