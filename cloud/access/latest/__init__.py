"""The latest reading of each key: as a snapshot, as a copy that stays up to date, as changes."""
