"""Credentials of devices: passwords for the broker, and claim codes to enrol with."""
