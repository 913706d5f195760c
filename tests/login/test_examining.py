"""`edgewake doctor` finds what is wrong with a login before a person does, at a real provider."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.login.conftest import CLIENT, SECRET, IdentityProvider, login_table, provider_process
from tests.services import PATIENCE_S, free_ports

pytestmark = pytest.mark.services
URL = "http://127.0.0.1:9876"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    directory = tmp_path_factory.mktemp("provider")
    started = provider_process(directory, free_ports(1)[0], [URL]).start()
    yield started
    started.process.stop()


Doctor = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def doctor(provider: IdentityProvider, tmp_path: Path) -> Doctor:
    """Runs the command over a configuration; what it finds of the login, by check."""

    def run(change: Callable[[dict[str, Any]], object] = lambda _: None) -> Any:
        table = login_table(tmp_path, provider, URL, {"staff": "operate"})
        for key in ("client_secret_file", "session_key_file"):
            Path(table[key]).chmod(0o600)
        values = {"login": table}
        change(values)
        file = tmp_path / "ops.toml"
        file.write_text(tomli_w.dumps(values))
        command = [sys.executable, "-m", "edgewake.deploy.cli", "doctor", "--config", str(file)]
        done = subprocess.run(
            [*command, "--data", str(tmp_path / "data"), "--json"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        found = {
            one["check"].removeprefix("login of ops.toml: "): one
            for one in json.loads(done.stdout)
            if one["check"].startswith("login")
        }
        assert SECRET not in done.stdout + done.stderr
        if any(one["verdict"] == "bad" for one in found.values()):
            assert done.returncode == 1
        return found

    return run


def test_a_login_that_works_is_good_in_every_part(doctor: Doctor) -> None:
    found = doctor()
    assert {name: one["verdict"] for name, one in found.items()} == dict.fromkeys(
        (
            "session key", "groups", "client secret", "provider", "provider's keys",
            "address to come back to", "client",
        ),
        "good",
    )  # fmt: skip


@pytest.mark.long
def test_another_address_to_come_back_to_is_found(doctor: Doctor) -> None:
    found = doctor(lambda values: values["login"].update(url="http://127.0.0.1:9877"))
    bad = {name for name, one in found.items() if one["verdict"] == "bad"}
    assert "address to come back to" in bad
    assert "http://127.0.0.1:9877/login/callback" in found["address to come back to"]["detail"]
    assert found["provider"]["verdict"] == "good"


def test_another_client_and_another_secret_are_found(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(lambda values: values["login"].update(client_id="somebody"))
    assert found["client"]["verdict"] == found["address to come back to"]["verdict"] == "bad"
    assert "somebody" in found["address to come back to"]["detail"]

    def wrong(values: dict[str, Any]) -> None:
        other = tmp_path / "other.secret"
        other.write_text("not the secret")
        values["login"]["client_secret_file"] = str(other)

    found = doctor(wrong)
    assert found["client"]["verdict"] == "bad"
    assert "invalid_client" in found["client"]["detail"]
    assert found["client secret"]["verdict"] == "warning", "others may read it"
    assert found["address to come back to"]["verdict"] == "good"
    assert CLIENT not in found["client"]["detail"]


def test_a_provider_that_calls_itself_otherwise_or_is_away_is_found(
    doctor: Doctor, provider: IdentityProvider
) -> None:
    slash = doctor(lambda values: values["login"].update(issuer=provider.issuer + "/"))
    assert "character for character" in slash["provider"]["detail"]
    (port,) = free_ports(1)
    away = doctor(lambda values: values["login"].update(issuer=f"http://127.0.0.1:{port}"))
    for name in ("provider", "provider's keys", "address to come back to", "client"):
        assert away[name]["verdict"] == "bad"
        assert str(port) in away[name]["detail"]


@pytest.mark.long
def test_what_lies_on_this_machine_is_looked_at(doctor: Doctor, tmp_path: Path) -> None:
    def broken(values: dict[str, Any]) -> None:
        key = tmp_path / "short.key"
        key.write_text(secrets.token_hex(8))
        values["login"] |= {
            "session_key_file": str(key),
            "client_secret_file": str(tmp_path / "none"),
            "groups": {"staff": "boss"},
        }

    found = doctor(broken)
    for name in ("session key", "client secret", "groups"):
        assert found[name]["verdict"] == "bad", name
    assert "boss" in found["groups"]["detail"]
    unknown = doctor(lambda values: values["login"].update(isuer="x"))
    assert "isuer" in unknown["configuration"]["detail"]
    reader = doctor(lambda values: values.update(rights={"roles": {}}))
    assert "expected one of rights.roles" in reader["groups"]["detail"]


def test_a_file_without_a_login_is_no_matter(doctor: Doctor) -> None:
    assert doctor(lambda values: values.pop("login")) == {}


@pytest.mark.long
def test_operations_may_have_roles_of_their_own_and_those_of_rights(doctor: Doctor) -> None:
    role = {"grants": [{"streams": ["*"]}]}

    def with_rights(values: dict[str, Any]) -> None:
        values["rights"] = {"roles": {"depot": role}}
        values["login"]["groups"] = {"staff": "operate", "owners": "depot"}

    def of_operations(values: dict[str, Any]) -> None:
        with_rights(values)
        values["key_file"] = "ops.key"

    (found,) = [one for one in doctor(of_operations).values() if "groups" in one["detail"]]
    assert "2 groups have a role" in found["detail"]
    assert any("'operate': unknown role" in one["detail"] for one in doctor(with_rights).values())
