"""Where the analysis keeps what it keeps, and what it asks of a cluster: refused at the start
rather than lost with a worker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.analysis.checkpoints.checkpoint import partition_without_state
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.lake.config import LakeConfig
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("data", "data"),
        ("/var/lib/a:b", "/var/lib/a:b"),
        ("file:///shared/edgewake", "/shared/edgewake"),
        ("file:/shared/edgewake", "/shared/edgewake"),
        ("file://localhost/shared/with%20space", "/shared/with space"),
    ],
)
def test_a_folder_is_a_path_or_its_url(text: str, path: str) -> None:
    assert parse(AnalysisConfig, {"data_dir": text}, "analysis.toml").kept_dir == Path(path)
    assert parse(LakeConfig, {"data_dir": text}, "lake.toml").data_dir == Path(path)


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://name/x",
        "s3a://bucket/x",
        "file://other-host/x",
        "file:relative",
        "file:///x?y",
        "file:///x#y",
    ],
)
def test_other_urls_are_refused_with_what_to_write_instead(text: str) -> None:
    with pytest.raises(ConfigError, match=r"shared_dir.*expected .*file:///"):
        parse(AnalysisConfig, {"shared_dir": text}, "analysis.toml")


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "spark://a:7077,b:7077", "yarn", "local-cluster[2,1,512]"]
)
def test_a_cluster_needs_a_shared_folder(master: str) -> None:
    with pytest.raises(ConfigError, match="expected shared_dir"):
        parse(AnalysisConfig, {"master": master}, "analysis.toml")
    found = parse(AnalysisConfig, {"master": master, "shared_dir": "/shared"}, "analysis.toml")
    assert found.kept_dir == Path("/shared")


@pytest.mark.parametrize(
    "name",
    [
        "executor.memory",
        "spark.jars",
        "spark.sql.ansi.enabled",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.caseSensitive",
    ],
)
def test_settings_that_the_analysis_depends_on_are_not_to_be_had(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected names that begin with spark"):
        parse(
            AnalysisConfig, {"spark": {name: "x", "spark.executor.memory": "2g"}}, "analysis.toml"
        )


def test_a_state_that_a_worker_wrote_elsewhere_is_noticed(tmp_path: Path) -> None:
    for partition, files in (
        ("0", ["7.changelog", "8_unique.changelog"]),
        ("1", ["7.changelog", "8.zip"]),
    ):
        folder = tmp_path / "state" / "0" / partition
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).touch()
    (tmp_path / "state" / "0" / "_metadata").mkdir()
    assert partition_without_state(tmp_path, 7, 2) is None
    (tmp_path / "state" / "0" / "1" / "8.zip").rename(tmp_path / "state" / "0" / "1" / ".8.zip.tmp")
    assert partition_without_state(tmp_path, 7, 2) == tmp_path / "state" / "0" / "1"
    assert partition_without_state(tmp_path, 7, 3) is not None


def test_a_lane_without_a_state_has_none_to_miss(tmp_path: Path) -> None:
    assert partition_without_state(tmp_path, 7, 2) is None
