"""Transports to remote servers: Streamable HTTP, HTTP+SSE, WebSocket, OAuth."""
