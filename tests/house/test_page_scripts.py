"""Every script of the pages can be read: one that cannot keeps its whole page from loading."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ = """
const { readFileSync } = require("node:fs");
const { SourceTextModule } = require("node:vm");
for (const path of process.argv.slice(1)) {
  try { new SourceTextModule(readFileSync(path, "utf8"), { identifier: path }); }
  catch (error) { console.log(`${path}: ${error.message}`); }
}
"""


def faults(*paths: Path) -> str:
    """What Node.js says of the modules that it cannot read."""
    node = ["node", "--no-warnings", "--experimental-vm-modules", "-e", READ, "--"]
    done = subprocess.run([*node, *map(str, paths)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_script_of_the_pages_can_be_read() -> None:
    page = ROOT / "cloud/page"
    scripts = [path for path in page.rglob("*.js") if "vendor" not in path.parts]
    assert len(scripts) > 40
    assert faults(*scripts) == ""


@pytest.mark.parametrize("text", ["const a = 1;\nconst a = 2;", "const a = `;", "import a from b;"])
def test_a_script_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.js"
    path.write_text(text)
    assert faults(path).startswith(f"{path}: ")
