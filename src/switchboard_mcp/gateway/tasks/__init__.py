"""Calls that children run as tasks. Start with `task_methods`."""
