"""Certificates of one installation: its own authority, and its book of issued and revoked ones."""
