"""Mail between machines: the relay, the shared directory, and what stands in Redis.

Above `mail`, whose letters it carries, and below the gateway. Only `redis` knows the client library.
"""
