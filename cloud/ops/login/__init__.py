"""Who may use the operations API: keys, sessions, and people of an identity provider."""
