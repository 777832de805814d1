"""Transports to remote servers: Streamable HTTP, HTTP+SSE, WebSocket, and OAuth.

Start with `remote_base`.
"""
