"""Sources by HTTP, server-sent events and WebSocket, asked by us or sent to us."""
