"""Parts as processes: started in order, watched, started again, stopped."""
