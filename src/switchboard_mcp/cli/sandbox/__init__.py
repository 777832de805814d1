"""`switchboard sandbox`: shows what sandboxes allow and keep here, and finds the smallest one for a child."""
