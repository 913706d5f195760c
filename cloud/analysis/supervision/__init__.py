"""Keeps one lane running for each wanted job, and isolates queries at fault or slow."""
