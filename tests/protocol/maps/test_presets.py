"""What the presets make of the messages in tests/payloads: written after the formats'
documentation, and each with the readings that must come.
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from edgewake.protocol.maps import presets
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.preview import preview
from tests.payloads.corpus import FOLDER, messages, payload_of

NOW_MS: Final = 1_790_000_000_000
PAYLOADS_MIN: Final = 380


@pytest.mark.parametrize("preset", presets.names())
def test_a_preset_makes_the_readings_that_must_come(preset: str) -> None:
    maps = compile_presets([preset], needs_names=True)
    own = [one for name, one in messages() if name == preset]
    assert len(own) >= 6, "too few payloads of this preset"
    for message in own:
        seen = preview(maps, message["topic"], payload_of(message), now_ms=NOW_MS)
        found = [
            {
                "device": one.device,
                "stream": one.stream,
                "t": "now" if one.t == NOW_MS else one.t,
                "fields": one.fields,
            }
            for one in seen.stored
        ]
        assert found == message["readings"], message["topic"]
        assert [str(why.reason) for why in seen.refused] == message.get("refused", [])


def test_there_are_enough_and_each_file_says_where_its_format_is_from() -> None:
    assert len(list(messages())) >= PAYLOADS_MIN
    for file in FOLDER.glob("*/*.json"):
        assert json.loads(file.read_text())["origin"], file
        assert file.parent.name.replace("_", "-") in presets.names(), file


@pytest.mark.parametrize("preset", presets.names())
def test_a_preset_says_what_it_is_for_and_each_of_its_maps_takes_a_message(preset: str) -> None:
    maps = compile_presets([preset], needs_names=True)
    assert presets.about(preset)
    used = {
        preview(maps, one["topic"], payload_of(one), now_ms=NOW_MS).map
        for name, one in messages()
        if name == preset
    }
    assert {one.name for one in maps.maps} - used == set()
