"""Our packages lie under `edgewake`, so distributions that own the names of our folders do not meet
them.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("edge", "cloud", "protocol", "simulators", "deploy")
PROGRAM = """
import importlib, edgewake.cloud.bridge.admission.admit, edgewake.deploy.cli, edgewake.edge.agent
import edgewake.protocol.frames.frame, edgewake.simulators.ledger
print(edgewake.__file__)
for name in ("edge", "cloud", "protocol", "simulators", "deploy"):
    assert importlib.import_module(name).OWNER == "somebody else", name
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def _foreign_wheel(folder: Path, name: str) -> Path:
    """A distribution of another project that owns the top-level name `name`."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": 'OWNER = "somebody else"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(file, text)
    return path


@pytest.mark.parametrize(
    "ours_first",
    [
        pytest.param(True, id="ours first", marks=pytest.mark.long),
        pytest.param(False, id="theirs first"),
    ],
)
def test_ours_works_beside_distributions_that_own_our_folders_names(
    wheel: Path, tmp_path: Path, ours_first: bool
):
    foreign = [_foreign_wheel(tmp_path, name) for name in FOLDERS]
    site = tmp_path / "site"
    uv = str(Path(sys.executable).with_name("uv"))
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
        "--link-mode=copy",
        "--target",
        str(site),
    ]
    for paths in [[wheel], foreign] if ours_first else [foreign, [wheel]]:
        subprocess.run([*install, *map(str, paths)], check=True, capture_output=True, text=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(site / "edgewake" / "__init__.py")), (
        done.stderr
    )


def test_the_wheel_holds_nothing_at_the_top_but_edgewake(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"edgewake"}


def test_the_wheel_tells_type_checkers_that_it_is_typed(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        assert "edgewake/py.typed" in archive.namelist()
