"""`switchboard mail`: the mail commands."""
