"""An application as all HTTP parts begin one: every error a problem, its description complete, and a page for it from our own files."""

from __future__ import annotations

from fastapi import FastAPI

from edgewake.cloud import web, web_docs, web_openapi


def application(title: str, *, description: str) -> FastAPI:
    """A FastAPI without routes but /openapi.json and /docs."""
    app = FastAPI(title=title, version="1", description=description, docs_url=None, redoc_url=None)
    web.install(app)
    web_docs.add(app)
    web_openapi.describe(app)
    return app
