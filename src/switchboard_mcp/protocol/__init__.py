"""MCP on the wire, without I/O: framing, JSON-RPC, protocol versions, `_meta`, HTTP headers. Pure."""
