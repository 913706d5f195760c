"""Turns recorded files into readings.

`csv_shape` and `rows`: what a file is; `look` and `time_columns`: what its columns are; `readings`:
what is sent of it.
"""
