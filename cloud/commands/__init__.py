"""What an operator types: `edgewake status` and its kin, over the operations API."""
