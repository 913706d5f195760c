"""The documentation page of every HTTP part comes from our own files."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.web.app import application

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def client() -> httpx.AsyncClient:
    app = application("A <title>", description="")
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://a")


async def test_the_page_and_its_files_are_served_here_under_a_policy_that_lets_nothing_else_in(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/docs")
    assert "A &lt;title&gt;" in page.text
    found = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert all("//" not in one for one in found)
    for one in found:
        if not one.startswith("data:"):
            answer = await client.get("/" + one)
            assert (
                answer.status_code,
                "default-src 'none'" in answer.headers["content-security-policy"],
            ) == (200, True), one
    assert (await client.get("/docs/manifest.json")).status_code == 404


@pytest.mark.parametrize("part", ["access", "ops", "push"])
def test_no_part_leaves_fastapi_s_own_page_on(part: str) -> None:
    """It fetches its script from a foreign network.

    `application` makes one without it, and no part makes another.
    """
    source = (ROOT / f"cloud/{part}/app.py").read_text()
    assert "application(" in source
    assert "FastAPI(" not in source


async def test_an_application_has_our_page_and_a_document_and_no_other_page(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/docs")
    assert "swagger-ui-bundle.js" in page.text
    assert (await client.get("/redoc")).status_code == 404
    document = (await client.get("/openapi.json")).json()
    assert (document["info"]["title"], "Problem" in document["components"]["schemas"]) == (
        "A <title>",
        True,
    )
