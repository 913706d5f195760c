"""Licences of what is locked: judged by their parts, looked at again when they change."""

from __future__ import annotations

import pytest

from edgewake.deploy.audit import accepted, licences
from edgewake.deploy.audit.locked import Component
from tests.deploy.audit.test_advisories import CLICK


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
