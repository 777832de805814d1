"""The lock: records what children offer, and holds running children to it. Start with `pinning`."""
