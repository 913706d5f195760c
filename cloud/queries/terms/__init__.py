"""What a query is made of: functions, expressions, windows, columns of tables."""
