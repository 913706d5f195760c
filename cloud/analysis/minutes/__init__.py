"""All streams summed up each minute, beside the queries."""
