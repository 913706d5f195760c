"""The files of tests are shared out as tests/sharing_out.py says."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests import class_archives
from tests.sharing_out import LONGEST, OWN_SPARK, PARSING, SECOND_SPARK, SPARK, TOGETHER, bundle, bundles, file_of, rank

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*LONGEST, *OWN_SPARK, *PARSING, *SECOND_SPARK, *sum(TOGETHER.values(), ())])
def test_what_is_named_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_tests_that_share_a_spark_session_or_the_servers_of_their_folder_stay_together() -> None:
    named = {
        SPARK: ["tests/analysis/test_late.py", "tests/analysis/test_run.py"],
        SECOND_SPARK[0]: [*SECOND_SPARK],
        **{file: [file] for file in OWN_SPARK},
        "tests/page/": ["tests/page/test_page.py", "tests/page/test_modules.py"],
        "tests/access/": ["tests/log/test_hub.py", "tests/access/test_nginx.py"],
        PARSING[0]: [*PARSING],
        "tests/ops/": ["tests/bridge/test_topic_check.py"],
        "tests/bridge/": ["tests/bridge/test_bridge.py"],
        "tests/edge/test_agent.py": ["tests/edge/test_agent.py"],
    }
    for name, files in named.items():
        assert {bundle(file, files) for file in files} == {name}


def test_a_file_that_starts_no_service_is_a_bundle_of_its_own() -> None:
    assert bundle("tests/analysis/test_late.py", ()) == "tests/analysis/test_late.py"


def test_bundles_are_given_out_in_the_order_of_their_first_tests() -> None:
    tests = ["tests/page/test_b.py::test_one[a::b]", "tests/edge/test_c.py::test_two", "tests/page/test_a.py::test_three"]
    assert bundles(tests, ["tests/page/test_a.py", "tests/page/test_b.py"]) == [[0, 2], [1]]


def test_the_kafka_of_another_bundle_has_ended(request: pytest.FixtureRequest) -> None:
    """This file is a bundle of its own and starts none; in a whole run the process has had some. Without `-n` all files share one."""
    kafkas = [child for child in psutil.Process().children() if "kafka.Kafka" in child.cmdline()]
    assert not kafkas or not hasattr(request.config, "workerinput")


def test_at_most_five_processes_start_the_session_s_kafka(request: pytest.FixtureRequest) -> None:
    asking = {file_of(item.nodeid) for item in request.session.items if "kafka" in getattr(item, "fixturenames", ())}
    assert {bundle(file, asking) for file in asking} <= {SPARK, SECOND_SPARK[0], *OWN_SPARK, "tests/access/", "tests/ops/"}


def test_the_longest_come_first_and_those_without_services_last() -> None:
    files = ["tests/edge/test_config.py", "tests/edge/test_agent.py", "tests/story/test_story.py", "tests/analysis/test_late.py"]
    ordered = sorted(files, key=lambda file: rank(file, files[1:]))
    assert ordered == ["tests/analysis/test_late.py", "tests/story/test_story.py", "tests/edge/test_agent.py", "tests/edge/test_config.py"]


@pytest.mark.services
def test_an_archive_of_classes_that_is_none_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "archive.jsa").write_bytes(b"\0" * 4096)
    assert not class_archives.fits(tmp_path / "archive.jsa", str(tmp_path))
    assert not class_archives.fits(tmp_path / "absent.jsa", str(tmp_path))
