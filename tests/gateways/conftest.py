"""One floor for all tests of the folder: each has gateways and things of its own names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateways.floor import Floor, floor


@pytest.fixture(scope="package")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with floor(tmp_path_factory.mktemp("floor")) as made:
        made.start_cloud()
        yield made
