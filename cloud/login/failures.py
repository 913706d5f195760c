"""What can go wrong between us and an identity provider; `str` says what."""

from __future__ import annotations


class Unusable(Exception):
    """What the provider said cannot be used."""


class WrongProvider(Exception):
    """It is not the one of the configuration, or cannot do what is needed."""


class ProviderRefuses(Exception):
    """It answers that it will not; `str` has its own words."""
