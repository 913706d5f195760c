"""Environments outside the checkout with Edgewake installed in them, by the interpreter that runs.

They borrow the libraries of its environment, and nothing of ours: their own Edgewake comes from a
wheel, an sdist, or an editable install.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.services import PATIENCE_S

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment with Edgewake, and a folder to call it from."""

    folder: Path
    wheel: Path
    """Or the sdist that it was installed from."""

    def program(self, name: str) -> str:
        """A program of the environment."""
        return str(self.folder / "bin" / name)

    def run(
        self, *words: str, data: Path | None = None, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        """Call a program from outside the checkout, and see how it ends."""
        command = [self.program(words[0]), *words[1:]]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(data),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert code in (None, done.returncode), (
            f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done


def environment(data: Path | None) -> dict[str, str]:
    """Nothing of the checkout is found by it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return kept | ({"EDGEWAKE_DATA": str(data)} if data else {})


def build(source: Path, target: str, folder: Path) -> Path:
    """What hatchling makes of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


def install(folder: Path, *what: str) -> None:
    """Make an environment of this interpreter, with its libraries, and install ours into it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(
        sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    )
    # Behind its own packages, and without what the lines of .pth files there would add: an editable
    # install of ours, above all.
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    uv = Path(sys.executable).with_name("uv")
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-build-isolation",
        "--python",
        folder / "bin" / "python",
        *what,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def from_wheel(folder: Path, wheel_folder: Path) -> Installed:
    """An environment with the wheel of this checkout."""
    wheel = build(ROOT, "wheel", wheel_folder)
    install(folder, "--no-index", str(wheel))
    return Installed(folder, wheel)


def from_sdist(folder: Path, sdist_folder: Path) -> Installed:
    """An environment with what the sdist of this checkout builds."""
    sdist = build(ROOT, "sdist", sdist_folder)
    install(folder, str(sdist))
    return Installed(folder, sdist)
