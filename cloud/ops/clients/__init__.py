"""Who reads at the access servers, and ending one, over HTTP."""
