"""Calls that run as tasks, of children or of Switchboard itself. Start with `own_tasks` and `task_methods`."""
