"""Child processes: the launcher, the reaper that leaves no process behind, and pseudo-terminals."""
