"""What was kept and comes back damaged: it is read, or is nothing, or is refused by the error that
is said; never another.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.actions import progress
from edgewake.edge.downlink import inbox, requests
from edgewake.edge.log.tables import sidecar
from edgewake.edge.processors.chain import decode_state
from edgewake.edge.processors.operators import absence
from edgewake.edge.settings.settings import FILE_NAME, SettingsFile, SettingsState, Version
from edgewake.edge.sketches import windows
from edgewake.edge.sources.lines.file_tail import FileTail, FileTailConfig
from edgewake.edge.sources.lines.follower import FilePositions
from edgewake.edge.sources.mqtt.recent_packets import RecentPackets
from edgewake.edge.sources.web.recent_keys import RecentKeys
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import ConfigError
from tests.edge.processors.helpers import at, chain

WORDS = (
    "begun counts active since_ms good trial failed is_begun why id version text files since_ns "
    "log epoch commit page_size digest states "
    "remarks in out done unknown"
)
NAMES = st.sampled_from(WORDS.split())
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
        NAMES,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=6)),
    max_leaves=12,
)
JSON = st.one_of(VALUES.map(orjson.dumps), st.binary(max_size=30))


@given(JSON)
def test_states_of_consumers_are_read_or_are_nothing(kept: bytes) -> None:
    found = progress.resumed(progress.decode(kept))
    assert found.begun is None
    assert progress.decode(found.encode()) == found
    assert absence.resumed(kept, now_s=5.0, now_ms=7).since_s == 5.0
    windows.resumed(kept, size_ms=1000, grace_ms=0).place(1, 5)
    decode_state(kept)
    one = chain({"type": "rate", "field": "x"})
    assert one.apply(one.resume(kept), [at(1, x=1)]).state.readings_in == 1
    ledger = inbox._ledger(kept)
    ledger.end("a")
    assert inbox._ledger(ledger.encode()).step("a") == "done"
    requests._book(kept).encode()


@given(st.one_of(st.text(max_size=40), JSON.map(lambda kept: kept.decode("utf-8", "replace"))))
def test_positions_of_sources_are_read_or_refused(kept: str) -> None:
    keys, packets = RecentKeys.decode(kept), RecentPackets.decode(kept)
    keys.add("k", b"")
    packets.add(1, "t", b"p")
    assert "k" in RecentKeys.decode(keys.encode())
    assert RecentPackets.decode(packets.encode()).is_repeat(1, "t", b"p")
    with suppress(ValueError, KeyError, TypeError):
        FilePositions.decode(kept)


@given(st.one_of(JSON, st.lists(VALUES.filter(lambda value: isinstance(value, dict)), max_size=3)))
def test_a_sidecar_is_ours_or_is_none(kept: bytes | list[dict[str, Any]]) -> None:
    found = sidecar.decode(kept if isinstance(kept, bytes) else b"".join(map(sidecar._line, kept)))
    assert found is None or sidecar.decode(sidecar._line(found.as_json())) == found


@given(JSON)
def test_settings_that_cannot_be_read_are_set_aside_and_the_device_starts_by_its_own(
    kept: bytes,
) -> None:
    with TemporaryDirectory() as folder:
        file = SettingsFile({"device": "d", "data_dir": folder}, Path(folder))
        (Path(folder) / FILE_NAME).write_bytes(kept)
        try:
            state = file.read()
        except ConfigError as error:
            assert folder in str(error)  # noqa: PT017  # most examples are refused, some are read
        else:
            assert state.latest >= state.version or state.version < 0
        assert file.start().device == "d"


@pytest.mark.parametrize("version", ["x", None, [], {}])
def test_a_version_that_is_no_number_is_no_version(tmp_path: Path, version: object) -> None:
    file = SettingsFile({"device": "d", "data_dir": str(tmp_path)}, tmp_path)
    file.write(SettingsState(good=Version("a", version, "")))  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        file.read()
    assert file.start().device == "d"


def test_a_file_whose_position_cannot_be_read_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Twice is better than never: what was added since nobody knows when is in it."""
    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    for position in ("{", "[]", '{"since_ns": 1, "files": [1]}', '{"offset": 3}'):
        config = FileTailConfig(type="file_tail", stream="s", path=path, start="end")
        tail = FileTail(config, SystemClock(), position=lambda _: position)  # noqa: B023
        follower = tail._begin()
        taken = follower.read(0.0)
        follower.close()
        assert taken is not None
        assert [line.text for line in taken.lines] == [b"one", b"two"]
