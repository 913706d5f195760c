"""Summaries of a stream's fields by minute, hour and day, and answers with bounds.

They go from `ew.summaries.*` through a store.

minutes of the analysis ─┐                                 ┌─ roll-up ─→ ew.summaries.hour, .day
                         ├→ ew.summaries.minute ─→ store ──┤
sketches of devices ─────┘                        (SQLite) └─ answers (API, `edgewake summary`)
"""
