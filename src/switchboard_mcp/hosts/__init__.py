"""Traits of the programs that talk to Switchboard, by the name and version they send. Pure. Start with `traits`."""
