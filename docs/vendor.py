"""Fetch the page's libraries from npm into `cloud/page/vendor/` as its manifest says.

    python docs/vendor.py            copy each listed file of each listed version, then write the
                                     hashes into the manifest

To move to a new version: change `version` in `cloud/page/vendor/manifest.json`, run this, look at
the page, commit. Needs `npm`; nothing else in this project does. `tests/house` checks the hashes
without it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "cloud/page/vendor"


def refresh(library: dict[str, Any], scratch: Path) -> dict[str, str]:
    """Copy one library's files out of its npm package; their hashes by file name."""
    name, version = library["name"], library["version"]
    subprocess.run(
        ["npm", "install", "--prefix", scratch, "--no-audit", "--no-fund", f"{name}@{version}"],
        check=True,
    )
    target = VENDOR / name
    target.mkdir(exist_ok=True)
    for file in library["files"]:
        shutil.copyfile(scratch / "node_modules" / name / file, target / Path(file).name)
    return {
        file: sha256((target / Path(file).name).read_bytes()).hexdigest()
        for file in library["files"]
    }


def main() -> None:
    """Refresh everything in the manifest."""
    manifest = VENDOR / "manifest.json"
    libraries = json.loads(manifest.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        for library in libraries:
            library["files"] = refresh(library, Path(scratch))
    manifest.write_text(json.dumps(libraries, indent=2) + "\n")


if __name__ == "__main__":
    main()
