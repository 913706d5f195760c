"""Names of hosts, groups, nodes and devices of Sparkplug."""

from __future__ import annotations

import pytest

from edgewake.protocol.sparkplug.names import checked_id


@pytest.mark.parametrize("name", ["Plant 1", "line.7", "Größe"])
def test_a_name_is_any_level_of_a_topic(name: str) -> None:
    assert checked_id(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "a+", "#"])
def test_what_means_something_in_a_filter_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="without / "):
        checked_id(name)
