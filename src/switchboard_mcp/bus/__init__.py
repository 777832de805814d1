"""Mail between machines over Redis Streams: the relay, shared state, and replicas.

Start with `relay`.
"""
