"""Folders of a configuration: a path, or a file: URL of one."""

from __future__ import annotations

import pytest

from edgewake.cloud.folder import path_of


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("data/lake", "data/lake"),
        ("/a:b", "/a:b"),
        ("file:///shared/edge%20wake", "/shared/edge wake"),
        ("file://localhost/shared", "/shared"),
        ("file:/shared", "/shared"),
    ],
)
def test_a_folder_is_the_path_that_it_names(text: str, path: str) -> None:
    assert path_of(text) == path


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/x", "hdfs://nn/x", "file://host/x", "file:x", "file:///x?y", "file:///x#y"],
)
def test_a_folder_that_not_all_machines_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected (a path or )?file:///"):
        path_of(text)
