"""What an access server tells other parts of its clients."""
