"""`make audit`: what is locked, licences, advisories, the bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from edgewake.deploy.audit import accepted, advisories, licences, locked
from edgewake.deploy.audit.accepted import Accepted, Advisory
from edgewake.deploy.audit.locked import Component
from edgewake.protocol.errors import LocalError
from tests.services import free_ports

ROOT = Path(__file__).parents[2]
CLICK = Component("pypi", "", "click", "8.3.1")
UNDICI = Component("npm", "", "undici", "7.30.2")
SNAKE = Component("maven", "org.yaml", "snakeyaml", "2.5")
REASON = "It is in a function that is not called here."
TODAY = date(2026, 11, 26)


def run(tmp_path: Path, *words: str, osv: str = "") -> subprocess.CompletedProcess[str]:
    """The command, with a bill of materials of its own."""
    command = [
        sys.executable,
        "-m",
        "edgewake.deploy.audit",
        "--root",
        str(ROOT),
        "--bill",
        str(tmp_path / "bill.json"),
        *words,
    ]
    where = {"EDGEWAKE_OSV": osv} if osv else {}
    return subprocess.run(
        ["env", *(f"{key}={value}" for key, value in where.items()), *command],
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_lock_is_read() -> None:
    found = {one.key: one for one in locked.all_of(ROOT)}
    assert {
        "pypi:click",
        "pypi:pyspark",
        "pypi:pytest",
        "npm:undici",
        "npm:leaflet",
        "maven:org.apache.kafka/kafka_2.13",
    } <= set(found)
    assert found["pypi:click"].is_shipped
    assert not found["pypi:pytest"].is_shipped
    assert not found["npm:undici"].is_shipped
    assert found["npm:leaflet"].is_shipped
    assert all(found["pypi:click"].hashes)
    lines = sum(path.read_text().count("==") for path in locked.requirement_files(ROOT).values())
    assert lines > 100


def test_a_folder_without_locks_is_said(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"is .* a checkout of Edgewake"):
        locked.all_of(tmp_path)


def test_offline_gives_licences_and_a_bill_and_says_that_nobody_was_asked(tmp_path: Path) -> None:
    done = run(tmp_path, "--offline")
    assert done.returncode == 0, done.stderr
    assert "advisories: NOT LOOKED AT" in done.stdout
    bill = json.loads((tmp_path / "bill.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    purls = {one["purl"]: one for one in bill["components"]}
    (click,) = (one for purl, one in purls.items() if purl.startswith("pkg:pypi/click@"))
    assert click["scope"] == "required"
    assert click["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert len(purls) == len(locked.all_of(ROOT))
    assert all(one["licenses"] for one in bill["components"]), "each has a licence"


def test_a_service_that_cannot_be_reached_is_no_clean_bill_of_health() -> None:
    (port,) = free_ports(1)
    told = advisories.ask_osv([SNAKE], f"http://127.0.0.1:{port}")
    assert told.warned == []
    assert f"http://127.0.0.1:{port} cannot be asked" in told.not_asked[SNAKE.key]


@pytest.mark.parametrize(
    "answer",
    [
        "ERROR: no route to host",
        '{"dependencies":[{"name":"click","skip_reason":"not found"}]}',
        "{}",
    ],
)
def test_what_pip_audit_skips_was_not_asked(answer: str) -> None:
    """pip-audit itself then ends with "No known vulnerabilities found"."""
    assert set(advisories.read_pip_audit(answer, [CLICK]).not_asked) == {CLICK.key}


def test_an_advisory_of_each_service_is_found() -> None:
    python = {
        "dependencies": [
            {
                "name": "click",
                "version": "8.3.1",
                "vulns": [{"id": "PYSEC-1", "description": "a hole\nmore"}],
            }
        ]
    }
    javascript = {
        "vulnerabilities": {"undici": {"via": [{"url": "x/GHSA-1", "title": "a hole"}, "another"]}}
    }
    told = advisories.read_pip_audit(json.dumps(python), [CLICK])
    told.add(advisories.read_npm(json.dumps(javascript), [UNDICI]))
    told.add(advisories.read_osv({"results": [{"vulns": [{"id": "GHSA-2"}]}]}, [SNAKE]))
    assert [(one.component, one.id) for one in told.warned] == [
        (CLICK.key, "PYSEC-1"),
        (UNDICI.key, "GHSA-1"),
        (SNAKE.key, "GHSA-2"),
    ]
    assert told.not_asked == {}
    assert len(list(advisories.judge(told, Accepted(licences=()), TODAY))) == 3


def test_an_answer_of_another_length_is_no_answer() -> None:
    with pytest.raises(ValueError, match="shorter"):
        advisories.read_osv({"results": []}, [SNAKE])


def test_npm_s_error_is_told() -> None:
    told = advisories.read_npm('{"message": "405 Method Not Allowed"}', [UNDICI])
    assert told.not_asked == {UNDICI.key: "npm audit says: 405 Method Not Allowed"}


def test_what_is_accepted_is_accepted_until_its_day_and_must_still_be_there() -> None:
    entry = Advisory(id="GHSA-2", component=SNAKE.key, reason=REASON, until=date(2026, 12, 31))
    known = Accepted(licences=(), advisory=(entry,))
    warned = advisories.read_osv({"results": [{"vulns": [{"id": "GHSA-2"}]}]}, [SNAKE])
    nothing, unknown = advisories.Told(), advisories.Told(not_asked={SNAKE.key: "no route"})
    assert list(advisories.judge(warned, known, TODAY)) == []
    assert [
        "look at it again" in one for one in advisories.judge(warned, known, date(2027, 1, 1))
    ] == [True]
    assert ["remove it" in one for one in advisories.judge(nothing, known, TODAY)] == [True]
    assert list(advisories.judge(unknown, known, TODAY)) == []


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("MIT", ""),
        ("EPL-2.0 OR BSD-3-Clause", ""),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", ""),
        ("GPL-3.0-only", "is GPL-3.0-only, which is not accepted"),
        ("MIT AND GPL-3.0-only", "is MIT AND GPL-3.0-only, which is not accepted"),
        ("", "says nowhere under which licence it is"),
    ],
)
def test_a_licence_is_judged_by_its_parts(expression: str, wrong: str) -> None:
    assert licences.judge(expression, CLICK, accepted.read()) == wrong


def test_a_licence_that_changed_is_looked_at_again() -> None:
    component = Component("maven", "com.google.re2j", "re2j", "1.8")
    assert licences.judge("", component, accepted.read()) == ""
    assert "accepted.toml says BSD-3-Clause" in licences.judge(
        "GPL-3.0-only", component, accepted.read()
    )
