"""Logs, metrics, traces and the call timeline."""
