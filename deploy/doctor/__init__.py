"""`edgewake doctor`: what is missing on this machine, and what does not answer."""
