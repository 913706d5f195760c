"""`make audit`: what is locked, licences, advisories, the bill of materials."""

from __future__ import annotations

import json
from datetime import date

import pytest

from edgewake.deploy.audit import advisories
from edgewake.deploy.audit.accepted import Accepted
from edgewake.deploy.audit.locked import Component
from tests.services import free_ports

CLICK = Component("pypi", "", "click", "8.3.1")
UNDICI = Component("npm", "", "undici", "7.30.2")
SNAKE = Component("maven", "org.yaml", "snakeyaml", "2.5")
TODAY = date(2026, 11, 26)


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
