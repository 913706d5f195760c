"""How the files of tests are shared out to the processes of a run, and in which order.

The longest come first and those that start no service last: what is left at the end is short, so no
process works alone for long. Tests that share a Spark session stay in one process: a session of
each process would load and compile all of Spark again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from xdist.scheduler import LoadFileScheduling

OWN_SPARK: Final = ("tests/analysis/test_truth.py", "tests/analysis/test_process.py")
"""Files of the analysis whose Spark is a process of its own."""
SECOND_SPARK: Final = (
    "tests/analysis/lanes/test_checkpoint_files.py",
    "tests/analysis/checkpoints/test_checkpoint.py",
    "tests/analysis/lanes/test_lane.py",
    "tests/analysis/schedule/test_slow.py",
    "tests/analysis/repair/test_repairs.py",
    "tests/analysis/test_run.py",
    "tests/analysis/test_real_sets.py",
    "tests/analysis/plan/test_partials.py",
    "tests/analysis/supervision/test_isolation.py",
)
"""Half of the time that files with a shared session take: one process for all of them would be at
work long after the others."""
SPARK: Final = "tests/analysis/"
PARSING: Final = ("tests/house/test_imports.py", "tests/house/test_layout.py")
"""They start no service, and both parse all our modules: together they do it once."""
TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "tests/access/": (
        "tests/access/",
        "tests/edge/client/",
        "tests/kafka/test_mortal.py",
        "tests/lake/",
        "tests/log/",
        *(
            f"tests/rights/test_{name}.py"
            for name in (
                "doors",
                "guessers",
                "leases",
                "limits",
                "named",
                "operations_narrowed",
                "own_share",
                "programs",
                "sockets",
            )
        ),
    ),
    "tests/ops/screens/": ("tests/ops/screens/", "tests/ops/alerts/"),
    "tests/ops/": (
        "tests/ops/",
        "tests/commands/",
        "tests/push/",
        "tests/deliveries/",
        "tests/kafka/test_topic_check.py",
        "tests/deploy/doctor/test_doctor.py",
        *(f"tests/deploy/test_{name}.py" for name in ("services", "signs_of_life")),
        "tests/simulators/test_devices_real.py",
    ),
    # Where a part that starts with a key of its own meets no leases that tests/push and
    # tests/access sealed with others.
    SPARK: (SPARK, "tests/deploy/test_nameless_uid.py", "tests/login/"),
    **{
        folder: (folder,)
        for folder in (
            "tests/bridge/",
            "tests/gateways/",
            "tests/hostile/",
            "tests/sequencer/",
            "tests/page/",
        )
    },
}
"""Bundle → how the names of its files begin; the first that fits counts. Files of a folder share
servers that are started for the folder, and those of the first two bundles the session's Kafka:
each process with one of them starts them, and what is idle costs time, too."""
LONGEST: Final = (
    SPARK,
    SECOND_SPARK[0],
    "tests/access/",
    "tests/ops/",
    "tests/ops/screens/",
    "tests/bridge/",
    "tests/hostile/",
    "tests/story/test_story.py",
    "tests/analysis/test_truth.py",
    "tests/analysis/test_process.py",
    "tests/sequencer/",
    "tests/page/",
    "tests/deploy/test_first_visit.py",
    "tests/deploy/test_listen.py",
    "tests/day/test_day.py",
    "tests/hiccups/test_hiccups.py",
    "tests/traces/test_traces.py",
)
"""Bundles that take half a minute and more. A bundle of a test or two is given out together with
the next one."""


def bundle(test: str) -> str:
    """The files that stay together with a test's: a test or a file as
    `tests/log/test_hub.py::test_name` → a name.
    """
    file = test.split("::", 1)[0]
    if file in PARSING:
        return PARSING[0]
    if file in SECOND_SPARK:
        return SECOND_SPARK[0]
    if file in OWN_SPARK:
        return file
    return next(
        (name for name, beginnings in TOGETHER.items() if file.startswith(beginnings)), file
    )


def rank(file: str, with_services: Collection[str]) -> int:
    """Files of a lower rank are given out earlier.

    `with_services`: the files with a test that starts one.
    """
    name = bundle(file)
    if name in LONGEST:
        return LONGEST.index(name)
    return len(LONGEST) + (file not in with_services)


class BundleScheduling(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, with bundles in place of files."""

    def _split_scope(self, nodeid: str) -> str:
        return bundle(nodeid)
