"""Keys of results on Kafka."""

from __future__ import annotations

import orjson

from edgewake.protocol.ops.result import (
    WATERMARK_KEY,
    is_watermark,
    key_head,
    result_key,
    watermark_value,
)


def test_each_revision_of_a_window_and_group_has_one_key_which_is_json() -> None:
    key = result_key(0, 60_000, '{"device":"car"}')
    assert orjson.loads(key) == [0, 60_000, {"device": "car"}]
    assert key.decode().startswith(key_head(0, 60_000))


def test_a_window_s_keys_begin_as_no_other_window_s_do() -> None:
    assert not result_key(0, 60_000, "{}").decode().startswith(key_head(0, 6_000))


def test_a_watermark_is_told_from_results_by_its_key() -> None:
    keys = (WATERMARK_KEY, result_key(0, 1, "{}"), None)
    assert [is_watermark(key) for key in keys] == [True, False, False]
    assert orjson.loads(watermark_value("q", 5, 2)) == {"query": "q", "watermark": 5, "revision": 2}
