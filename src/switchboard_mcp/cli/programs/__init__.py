"""`switchboard program`: checks, runs and keeps programs from a shell."""
