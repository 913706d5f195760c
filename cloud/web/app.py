"""Makes an application as all HTTP parts do: every error a problem, no parameter ignored.

Its description is complete, with a page for it.
"""

from __future__ import annotations

from fastapi import Depends, FastAPI

from edgewake.cloud.web import docs as web_docs
from edgewake.cloud.web import http_part
from edgewake.cloud.web import openapi as web_openapi
from edgewake.cloud.web.parameters import known_parameters


def application(title: str, *, description: str) -> FastAPI:
    """A FastAPI without routes but /openapi.json and /docs."""
    app = FastAPI(
        title=title,
        version="1",
        description=description,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(known_parameters)],
    )
    http_part.install(app)
    web_docs.add(app)
    web_openapi.describe(app)
    return app
