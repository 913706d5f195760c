"""The address that `edgewake up --listen` takes."""

from __future__ import annotations

import pytest

from edgewake.deploy.network import address
from edgewake.protocol.errors import ConfigError, LocalError


@pytest.mark.parametrize(
    ("said", "why"),
    [("", "expected an address"), ("my-machine", "expected an address"),
     ("192.168.1", "expected an address"), ("0.0.0.0", "expected one address"),
     ("::", "expected one address"), ("127.0.0.1", "this machine itself needs none"),
     ("::1", "this machine itself needs none")],
)  # fmt: skip
def test_what_is_no_address_or_stands_for_several_is_refused_with_an_example(
    said: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"^--listen {said}: .*{why}") as refused:
        address(said)
    assert "192.168.1.5" in str(refused.value)


@pytest.mark.parametrize("said", ["192.0.2.1", "198.51.100.7"])
def test_an_address_that_this_machine_does_not_have_is_said_with_the_cure(said: str) -> None:
    with pytest.raises(LocalError, match=r"has no such address; .* `--listen auto`"):
        address(said)
