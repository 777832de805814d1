"""The HTTP server: Streamable HTTP, HTTP+SSE, authentication and connection limits.

Start with `front`.
"""
