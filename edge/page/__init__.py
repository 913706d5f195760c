"""The agent's page and its metrics, in a process of their own."""
