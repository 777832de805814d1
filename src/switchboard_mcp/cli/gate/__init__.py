"""The commands about single calls: `gate` and `approvals`."""
