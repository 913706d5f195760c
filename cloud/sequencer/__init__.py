"""The sequencer: from `ew.up` to `ew.s.*`, each frame once and in order."""
