"""Upkeep of the message store: delivery sweeps, verification, repair and retention."""
