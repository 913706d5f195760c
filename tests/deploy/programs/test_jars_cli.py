"""The command that fetches jars."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.deploy.programs.test_jars import SPARK, Mirror, repository


def test_the_command_fetches_from_the_mirror_that_the_environment_names(
    tmp_path: Path, spark_jars: Path
) -> None:
    with repository(Mirror(spark_jars)) as address:
        environ = os.environ | {
            "EDGEWAKE_CACHE": str(tmp_path / "cache"),
            "EDGEWAKE_MAVEN": address + "/",
        }
        command = [
            sys.executable,
            "-m",
            "edgewake.deploy.cli",
            "jars",
            "fetch",
            "spark",
            "--link",
            str(tmp_path / "link"),
        ]
        for _ in range(2):
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            assert (done.returncode, Path(done.stdout.strip()).parent) == (0, tmp_path / "cache"), (
                done.stderr
            )
    assert len(list((tmp_path / "link").glob("*.jar"))) == len(SPARK)
