"""Summaries: what a stream's field held in a minute, an hour or a day, from `ew.summaries.*`
through a store to answers with bounds.

minutes of the analysis ─┐                                 ┌─ roll-up ─→ ew.summaries.hour, .day
                         ├→ ew.summaries.minute ─→ store ──┤
sketches of devices ─────┘                        (SQLite) └─ answers (API, `edgewake summary`)
"""
