"""The faults that `edgewake up --faults` does to its own parts on demand."""
