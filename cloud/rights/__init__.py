"""Who may read what: principals, their grants, and what proves who somebody is."""
