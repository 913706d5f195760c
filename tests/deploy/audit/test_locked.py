"""What the locks name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.deploy.audit import locked
from edgewake.protocol.errors import LocalError
from tests.deploy.audit.test_bill import ROOT


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
