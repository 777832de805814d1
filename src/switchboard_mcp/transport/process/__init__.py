"""Child processes: launcher, reaper and pseudo-terminals."""
