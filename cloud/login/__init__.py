"""People log in at an identity provider (OpenID Connect): sessions, their cookie, their routes."""
