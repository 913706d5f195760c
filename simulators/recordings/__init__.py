"""Recorded files become readings: what a file is (`csv_shape`, `rows`), what its columns are
(`look`, `time_columns`), and what is sent of it (`readings`).
"""
