"""Things behind this device: each is a device of its own in the cloud.

Each has streams of its own in the log.
"""
