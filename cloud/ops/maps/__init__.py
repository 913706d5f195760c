"""Maps that an operator gives to all bridges."""
