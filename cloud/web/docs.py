"""The API's documentation page: Swagger UI from our own files in `cloud/page/vendor`.

GET /docs                        the page
GET /docs/{file}                 its script, style and start
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.responses import FileResponse, Response

from edgewake.cloud.web.http_part import Problem

DOCS_PATH: Final = "/docs"
# Swagger UI writes style attributes and shows pictures of its own as data.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' "
    "data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
FILES: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
START: Final = """SwaggerUIBundle({
  url: "openapi.json", dom_id: "#page", deepLinking: true, validatorUrl: null
})
"""
PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css"></head>
<body><main id="page"></main><script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script></body>
</html>
"""


def add(app: FastAPI) -> None:
    """Serve the page of `app`; make `app` with docs_url=None and redoc_url=None."""
    folder = Path(str(files("edgewake.cloud"))) / "page" / "vendor" / "swagger-ui-dist"
    page = PAGE.format(title=escape(app.title))

    @app.get(DOCS_PATH, include_in_schema=False)
    async def docs() -> Response:
        return Response(
            page,
            media_type="text/html; charset=utf-8",
            headers={"Cache-Control": "no-cache", **SECURITY},
        )

    @app.get(DOCS_PATH + "/{file}", include_in_schema=False)
    async def asset(file: str) -> Response:
        headers = {"Cache-Control": "no-cache", **SECURITY}
        if file == "start.js":
            return Response(START, media_type="text/javascript; charset=utf-8", headers=headers)
        if file not in FILES:
            raise Problem(404, "not_found", f"{DOCS_PATH}/{file[:80]}: no such file")
        return FileResponse(folder / file, headers=headers)
