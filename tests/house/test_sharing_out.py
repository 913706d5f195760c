"""The files of tests are shared out as tests/sharing_out.py says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import class_archives
from tests.sharing_out import (
    LONGEST,
    OWN_SPARK,
    PARSING,
    SECOND_SPARK,
    SPARK,
    TOGETHER,
    bundle,
    rank,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", [*LONGEST, *OWN_SPARK, *PARSING, *SECOND_SPARK, *sum(TOGETHER.values(), ())]
)
def test_what_is_named_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_tests_that_share_a_session_or_servers_stay_together_and_others_are_own_bundles() -> None:
    assert (
        bundle("tests/analysis/plan/test_late.py::test_one[a::b]")
        == bundle("tests/analysis/jobs/test_language.py::test_two")
        == SPARK
    )
    assert {bundle(f"{file}::test_three") for file in SECOND_SPARK} == {SECOND_SPARK[0]}
    assert bundle(f"{OWN_SPARK[0]}::test_three") == OWN_SPARK[0]
    assert {bundle(f"{file}::test_three") for file in PARSING} == {PARSING[0]}
    assert (
        bundle("tests/page/test_page.py::test_four")
        == bundle("tests/page/test_modules.py::test_five")
        == "tests/page/"
    )
    assert (
        bundle("tests/log/test_hub.py::test_four")
        == bundle("tests/access/test_nginx.py")
        == "tests/access/"
    )
    assert (
        bundle("tests/kafka/test_topic_check.py::test_four")
        == "tests/ops/"
        != bundle("tests/bridge/test_bridge.py::test_four")
    )
    assert bundle("tests/edge/test_agent.py::test_four") == "tests/edge/test_agent.py"


def test_no_other_bundle_asks_for_the_session_s_kafka(request: pytest.FixtureRequest) -> None:
    asking = {
        bundle(item.nodeid)
        for item in request.session.items
        if "kafka" in getattr(item, "fixturenames", ())
    }
    shared = {"tests/access/", "tests/ops/", "tests/ops/screens/"}
    assert asking <= {SPARK, SECOND_SPARK[0], *OWN_SPARK} | shared


def test_the_longest_come_first_and_those_without_services_last() -> None:
    files = [
        "tests/edge/test_config.py",
        "tests/edge/test_agent.py",
        "tests/story/test_story.py",
        "tests/analysis/plan/test_late.py",
    ]
    ordered = sorted(files, key=lambda file: rank(file, {"tests/edge/test_agent.py"}))
    assert ordered == [
        "tests/analysis/plan/test_late.py",
        "tests/story/test_story.py",
        "tests/edge/test_agent.py",
        "tests/edge/test_config.py",
    ]


@pytest.mark.services
def test_an_archive_of_classes_that_is_none_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "archive.jsa").write_bytes(b"\0" * 4096)
    assert not class_archives.fits(tmp_path / "archive.jsa", str(tmp_path))
    assert not class_archives.fits(tmp_path / "absent.jsa", str(tmp_path))
