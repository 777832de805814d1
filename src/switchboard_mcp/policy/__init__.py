"""Decides which children may run and which subtools exist."""
