"""Alerts: rules are judged over what arrives, and their notes are sent to destinations."""
