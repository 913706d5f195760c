"""Fault injection for demonstrations, done by the supervisor of `edgewake up --faults`."""
