"""What all HTTP servers share: bounds, errors, pages, TLS, and where a request comes from."""
