"""What a start says while something is under way, where nobody watches a terminal."""

from __future__ import annotations

import pytest

from edgewake.deploy.progress import Cancelled, Steps
from edgewake.protocol.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_step_is_said_at_its_beginning_and_with_its_time_at_its_end(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Steps(clock) as steps, steps.step("fetching jars"):
        clock.advance(2.5)
    assert capsys.readouterr().err == "… fetching jars\n✓ fetching jars (2.5 s)\n"


def test_a_step_that_fails_is_said_and_its_error_goes_on(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OSError, match="no room"), Steps(clock) as steps, steps.step("writing"):
        raise OSError("no room")
    assert capsys.readouterr().err == "… writing\n✗ writing: did not work\n"


def test_a_long_download_says_how_far_it_is_now_and_then(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Steps(clock).start("jars")
    for mebibytes in range(10):
        clock.advance(1)
        step.update(mebibytes << 20, 9 << 20)
    assert capsys.readouterr().err == "  jars: 4 of 9 MiB\n  jars: 9 of 9 MiB\n"


def test_a_step_ends_at_its_next_update_after_ctrl_c(clock: FakeClock) -> None:
    steps = Steps(clock)
    step = steps.start("jars")
    steps.cancel()
    with pytest.raises(Cancelled):
        step.update(1, 2)
