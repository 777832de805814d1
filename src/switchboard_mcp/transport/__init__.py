"""Transports that carry whole JSON-RPC messages: stdio, HTTP, WebSocket, memory.

Start with `base` and `rpc`.
"""
