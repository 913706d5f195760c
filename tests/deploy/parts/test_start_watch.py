"""When a start counts as hanging."""

from __future__ import annotations

import os
import subprocess
import sys

from edgewake.deploy.parts.start_watch import SILENT_WORK_S, StartWatch, processor_s

STALLED_S = 120.0
STEP_S = 5.0


def hangs_after(
    *, work_per_s: float, every_words_s: float = 0.0, until_s: float = 4000.0
) -> tuple[float, str]:
    """Seconds until it is given up, and why; `until_s` and "" where it is not."""
    watch, now_s, words = StartWatch(STALLED_S, 0.0), 0.0, 0
    while now_s < until_s:
        now_s += STEP_S
        words += int(bool(every_words_s) and now_s % every_words_s == 0)
        if why := watch.look(now_s, words=words, work_s=now_s * work_per_s):
            return now_s, why
    return until_s, ""


def test_one_that_does_nothing_is_given_up_after_its_bound() -> None:
    assert hangs_after(work_per_s=0.0) == (125.0, "not ready, and nothing done for 125 s")
    assert hangs_after(work_per_s=0.005)[0] == 125.0, "a Java that waits ticks on"


def test_one_that_gets_a_tenth_of_a_processor_may_take_an_hour() -> None:
    """240 s by the clock was too little for Spark on a busy machine: three people saw it killed."""
    assert hangs_after(work_per_s=0.1) == (4000.0, "")


def test_one_that_says_something_every_minute_goes_on_without_any_work() -> None:
    assert hangs_after(work_per_s=0.0, every_words_s=60.0) == (4000.0, "")


def test_one_that_turns_round_and_round_without_a_word_ends() -> None:
    assert hangs_after(work_per_s=1.0) == (
        SILENT_WORK_S + STEP_S,
        "not ready, and no word in 900 s of work",
    )


def test_a_machine_that_slept_is_no_reason() -> None:
    watch = StartWatch(STALLED_S, 0.0)
    assert watch.look(5.0, words=1, work_s=1.0) == ""
    assert watch.look(8 * 3600.0, words=1, work_s=1.0) == ""


def test_the_work_of_a_process_is_read_with_its_children() -> None:
    used = "import time\nwhile time.process_time() < 0.5: sum(range(10_000))"
    before = processor_s(os.getpid())
    subprocess.run([sys.executable, "-S", "-c", used], check=True)
    assert processor_s(os.getpid()) - before >= 0.3
    assert processor_s(2**22 + 1) == 0.0
