"""Keeps large results out of the context: `select`, compact JSON, heads with a handle to the rest."""
