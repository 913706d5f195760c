"""What a lane goes on from: Spark's checkpoint, states on `ew.windows`, the log read once more."""
