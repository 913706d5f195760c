"""The bill of materials, and what is said where nobody was asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from edgewake.deploy.audit import locked

ROOT = Path(__file__).parents[3]


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
