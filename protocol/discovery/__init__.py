"""What devices announce of their values before they send any."""
