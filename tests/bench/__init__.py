"""Benchmarks: each is a program of its own, `python -m tests.bench.bench_NAME`; `report` runs all
and writes docs/benchmarks.md.
"""
