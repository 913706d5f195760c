"""The border of the agent: what sources bring is checked once and becomes readings."""
