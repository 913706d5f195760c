from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.waking.agenda import SPARE, Agenda

ACTIONS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from("abcdef"), st.integers(0, 50)),
    st.tuples(st.just("drop"), st.sampled_from("abcdef"), st.just(0)),
    st.tuples(st.just("due"), st.just(""), st.integers(0, 50)),
)


@given(st.lists(ACTIONS, max_size=60))
def test_each_lease_comes_once_at_its_latest_time_in_order(
    actions: list[tuple[str, str, int]],
) -> None:
    agenda, model = Agenda(), dict[str, int]()
    for action, lease_id, at in actions:
        match action:
            case "set":
                agenda.set(lease_id, at)
                model[lease_id] = at
            case "drop":
                agenda.drop(lease_id)
                model.pop(lease_id, None)
            case _:
                found = list(agenda.due(at))
                assert found == [
                    name
                    for when, name in sorted((when, name) for name, when in model.items())
                    if when <= at
                ]
                model = {name: when for name, when in model.items() if when > at}
        assert (len(agenda), agenda.next_at()) == (len(model), min(model.values(), default=None))


def test_times_that_are_out_of_date_take_no_memory_without_bound() -> None:
    agenda = Agenda()
    for at in range(20 * SPARE):
        agenda.set("a", at)
    assert len(agenda._heap) <= SPARE + 3
    assert list(agenda.due(10**9)) == ["a"]
