"""MCP on the wire, without I/O: framing, JSON-RPC, protocol versions, `_meta`, HTTP headers.

Everything here is pure. Start with `jsonrpc` and `versions`.
"""
