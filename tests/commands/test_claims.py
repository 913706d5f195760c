"""Codes for new devices in a terminal: made, listed and ended, as on the operations pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from edgewake.deploy.cli import edgewake
from tests.commands.test_options import completed
from tests.ops.service import KEY, Ops, running
from tests.services import Kafka

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    folder = tmp_path_factory.mktemp("claims")
    passwords = f'password_file = "{folder / "credentials" / "passwords"}"\n'
    with running(kafka.bootstrap, folder, passwords) as service:
        yield service


@pytest.fixture
def devices(ops: Ops) -> Callable[..., Result]:
    def run(*words: str) -> Result:
        return CliRunner().invoke(
            edgewake, ["devices", "--ops", ops.url, "--key", KEY, "--json", *words]
        )

    return run


def test_a_code_is_listed_used_and_ended_in_a_terminal(
    ops: Ops, devices: Callable[..., Result], unique: Callable[[str], str]
) -> None:
    prefix = unique("shed-")
    code = json.loads(devices("claim", "--count", "2", "--prefix", prefix).stdout)["code"]

    def mine() -> list[dict[str, object]]:
        return [one for one in json.loads(devices("claims").stdout) if one["prefix"] == prefix]

    (listed,) = mine()
    assert listed["left"] == 2
    assert code not in devices("claims").stdout, "only who made it has the code"
    enrolled = ops.client.post("/v1/enrol", json={"code": code, "device": f"{prefix}1"})
    assert enrolled.status_code == 200
    assert mine() == [{**listed, "left": 1}]
    holders = json.loads(devices("credentials").stdout)
    assert {"device": f"{prefix}1", "kind": "password", "until": None} in holders

    ended = devices("end-claim", str(listed["id"]))
    assert (ended.exit_code, mine()) == (0, [])
    refused = ops.client.post("/v1/enrol", json={"code": code, "device": f"{prefix}2"})
    assert refused.status_code == 403
    again = devices("end-claim", str(listed["id"]))
    assert again.exit_code == 1
    assert "used up, ended or taken back" in again.stderr


def test_the_code_in_place_of_its_id_is_refused_with_what_is_expected(
    devices: Callable[..., Result],
) -> None:
    done = devices("end-claim", "AAAA-BBBB-CCCC-DDDD-EEEE-FFFF")
    assert done.exit_code == 2
    assert "12 characters that `edgewake devices claims` shows" in done.stderr


def test_ids_of_codes_are_completed(
    ops: Ops, devices: Callable[..., Result], unique: Callable[[str], str]
) -> None:
    devices("claim", "--prefix", unique("hut-"))
    (listed, *_) = json.loads(devices("claims").stdout)
    shown = completed("devices", "--ops", ops.url, "--key", KEY, "end-claim", listed["id"][:6])
    assert listed["id"] in shown
