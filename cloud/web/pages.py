"""The pages: files of `cloud/page/` at `/page/…`, from the source tree or a wheel."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

REVALIDATE: Final = "no-cache"
"""Ours change with each version and have no version in their names: always ask, ETag answers
304."""
LIBRARY_CACHE: Final = "public, max-age=86400"
SECURITY: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def folder() -> Path:
    """Where the page's files are."""
    return Path(str(files("edgewake.cloud"))) / "page"


class PageFiles(StaticFiles):
    """The pages' files with their caching."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = (
            LIBRARY_CACHE if path.startswith("vendor/") else REVALIDATE
        )
        response.headers.update(SECURITY)
        return response


def document(name: str) -> Response:
    """Serve one of the pages."""
    return FileResponse(folder() / name, headers={"Cache-Control": REVALIDATE, **SECURITY})
