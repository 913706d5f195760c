"""The operations API, by which people who run Edgewake inspect and change it."""
