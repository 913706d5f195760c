from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.waking.host_turns import HostTurns


def drain(turns: HostTurns) -> list[str]:
    return list(iter(turns.pop, None))


def test_one_host_s_crowd_delays_another_host_by_one() -> None:
    turns = HostTurns()
    for n in range(1000):
        turns.add(f"crowd-{n}", "crowded")
    turns.add("1", "quiet")
    turns.add("2", "quiet")
    assert [turns.pop() for _ in range(5)] == ["crowd-0", "1", "crowd-1", "2", "crowd-2"]


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "discard", "pop"]), st.integers(0, 9))))
def test_each_waits_once_in_the_order_of_its_host_and_who_left_is_not_given(
    actions: list[tuple[str, int]],
) -> None:
    turns, model = HostTurns(), dict[str, None]()
    for action, n in actions:
        lease_id, host = str(n), f"host-{n % 3}"
        if action == "add":
            turns.add(lease_id, host)
            model.setdefault(lease_id)
        elif action == "discard":
            turns.discard(lease_id)
            model.pop(lease_id, None)
        else:
            found = turns.pop()
            assert (found is None) == (not model)
            if found is not None:
                del model[found]
        assert len(turns) == len(model)
    assert sorted(drain(turns)) == sorted(model)
