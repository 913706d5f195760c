"""Every tool follows an import in a checkout, with no path set: an editor, a type checker, a
linter.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.house.source import FLOORS, ROOT, modules

PYRIGHT = ROOT / "tests/js/node_modules/pyright/index.js"
PARTS = (
    "edge/run.py",
    "cloud/analysis/run.py",
    "cloud/access/run.py",
    "deploy/up.py",
    "simulators/vehicles.py",
)
"""They import most of what there is."""


def test_each_floor_is_importable_by_a_link():
    links = {name: ROOT / "edgewake" / name for name in FLOORS}
    assert {name: str(link.readlink()) for name, link in links.items()} == {
        name: f"../{name}" for name in FLOORS
    }


@pytest.mark.long
@pytest.mark.services
def test_pyright_follows_every_import_from_the_root(tmp_path: Path):
    """The same files with a link less are the control: pyright names the import that it cannot
    follow.
    """
    assert PYRIGHT.exists(), "pyright is missing or older than its lock: run `make needs`"
    shown = _unresolved(ROOT, *PARTS)
    assert shown == []
    for name in (*(name for name in FLOORS if name != "protocol"), "protocol"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "edgewake").mkdir()
    (tmp_path / "edgewake/__init__.py").touch()
    (tmp_path / "edgewake/cloud").symlink_to("../cloud")
    assert any("edgewake.protocol" in line for line in _unresolved(tmp_path, "cloud/access/run.py"))


def _unresolved(root: Path, *files: str) -> list[str]:
    """Imports of ours that pyright cannot follow when it is started at `root`, as `file:
    message`.
    """
    command = ["node", str(PYRIGHT), "--outputjson", *files]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files), done.stdout
    return [
        f"{one['file']}: {one['message']}"
        for one in report["generalDiagnostics"]
        if one.get("rule") in ("reportMissingImports", "reportAttributeAccessIssue")
        and '"edgewake' in one["message"]
    ]


def test_the_links_bring_every_module_once():
    assert [
        path for path in modules(*FLOORS) if not (ROOT / "edgewake" / path).samefile(ROOT / path)
    ] == []
