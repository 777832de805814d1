"""Rate limits and quarantine shared by several servers behind one address, through Redis."""
