"""Sketches that are made on the device.

`windows` decides, `sketching` commits, `maker` is the child process that holds them.
"""
