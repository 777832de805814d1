"""Workflows: definitions, the rules of each step, and the engine that runs them."""
