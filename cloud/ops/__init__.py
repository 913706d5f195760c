"""The operations API: what the people who run Edgewake see and do."""
