"""Hides secrets in logs, errors and artifacts. Pure."""
