"""Whose fault a failure is, what follows, and how the guilty query is found."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.lanes.failures import (
    Failure,
    Fault,
    Step,
    Trouble,
    classify,
    find_failing,
    step,
)

HERE, THERE = {"s": {0: 5}}, {"s": {0: 6}}
JOB = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 "
    "failed 1 times"
)
LOAD = (
    "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred "
    "during loading state"
)


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ([JOB, "java.io.IOException: No space left on device"], Fault.SURROUNDINGS),
        ([JOB, "java.util.concurrent.CancellationException: another task has the state now"],
            Fault.SURROUNDINGS),
        ([JOB, "org.apache.kafka.common.errors.TimeoutException: Timeout"], Fault.SURROUNDINGS),
        ([JOB + ": ExecutorLostFailure (executor 1 exited)"], Fault.SURROUNDINGS),
        (["java.lang.OutOfMemoryError: Java heap space"], Fault.SURROUNDINGS),
        (["org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer."],
            Fault.SURROUNDINGS),
        ([JOB + ": total size of results is bigger than spark.driver.maxResultSize (1024.0 MiB)"],
            Fault.SURROUNDINGS),
        ([JOB, "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom"],
            Fault.SUSPECT),
        (["java.lang.ArithmeticException: / by zero"], Fault.SUSPECT),
        ([], Fault.SUSPECT),
        ([LOAD, "java.io.FileNotFoundException: 7.changelog"], Fault.STATE_LOST),
        ([LOAD, "java.io.IOException: No space left on device"], Fault.SURROUNDINGS),
        (["org.apache.kafka.clients.consumer.OffsetOutOfRangeException: x"], Fault.OVERTAKEN),
    ],
)  # fmt: skip
def test_an_exception_is_judged_by_all_its_causes(causes: list[str], expected: Fault) -> None:
    assert classify(causes) is expected


def steps(*failures: Failure) -> list[Step]:
    trouble, found = Trouble(), []
    for failure in failures:
        trouble, what = step(trouble, failure)
        found.append(what)
    return found


def test_surroundings_are_waited_for_however_often_they_fail() -> None:
    assert steps(*[Failure(Fault.SURROUNDINGS, "full", HERE)] * 20) == [Step.RETRY] * 20


def test_only_a_batch_that_fails_twice_at_the_same_place_makes_queries_suspects() -> None:
    here, there = Failure(Fault.SUSPECT, "boom", HERE), Failure(Fault.SUSPECT, "boom", THERE)
    assert steps(here, there, there) == [Step.RETRY, Step.RETRY, Step.BISECT]
    assert steps(Failure(Fault.SUSPECT, "boom"), Failure(Fault.SUSPECT, "boom")) == [
        Step.RETRY,
        Step.RETRY,
    ], "no batch had begun"


def test_a_lane_that_another_process_computes_ends_this_one() -> None:
    assert steps(Failure(Fault.FENCED, "fenced", HERE)) == [Step.END]


def test_a_state_that_cannot_be_loaded_twice_is_built_again() -> None:
    lost = Failure(Fault.STATE_LOST, "gone", HERE)
    assert steps(lost, lost) == [Step.RETRY, Step.REBUILD]


@pytest.mark.parametrize("bad", [set(), {3}, {0, 7}, {4, 5}, set(range(8))])
def test_the_guilty_are_found_by_halving(bad: set[int]) -> None:
    runs = []

    def fails(queries: object) -> bool:
        runs.append(queries)
        return bool(bad & set(queries))  # type: ignore[call-overload]

    assert set(find_failing(list(range(8)), fails)) == bad
    assert len(runs) <= 1 + 6 * max(1, len(bad))
