"""Requests from children to their client: relayed, translated between protocol versions, or suspended.

Start with `client_request_broker`.
"""
