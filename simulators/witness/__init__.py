"""Watches a running system from outside, while parts of it are killed and links cut."""
