"""Things behind this device: each is a device of its own in the cloud, and has streams of its own
in the log.
"""
