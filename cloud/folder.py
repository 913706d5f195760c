"""Folders in a configuration: a path, or a URL (`file:///shared/edgewake`) as for Hadoop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator


def path_of(value: Any) -> Any:
    """The path that a `file:` URL names; a path stays as it is.

    Raises ValueError for other URLs, which name no file system.
    """
    if not isinstance(value, str) or ("://" not in value and not value.startswith("file:")):
        return value
    url = urlsplit(value)
    if url.scheme != "file":
        raise ValueError(
            "expected a path or file:///…, a file system that all machines mount; "
            f"{url.scheme}:// is not one"
        )
    if (
        url.netloc not in ("", "localhost")
        or not url.path.startswith("/")
        or url.query
        or url.fragment
    ):
        raise ValueError(
            "expected file:/// and an absolute path: a host, ? or # have no meaning here"
        )
    return unquote(url.path)


Folder: TypeAlias = Annotated[Path, BeforeValidator(path_of)]
"""A folder of a configuration."""
