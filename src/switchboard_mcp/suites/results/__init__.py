"""Tool results that stay out of the context: selection, compact JSON, heads. Pure."""
