"""Mail between machines over Redis Streams: the relay and shared state.

Start with `relay`.
"""
