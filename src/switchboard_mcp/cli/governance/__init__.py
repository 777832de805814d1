"""The commands of governed mode: `approve`, `lock`, `evidence` and `audit`."""
