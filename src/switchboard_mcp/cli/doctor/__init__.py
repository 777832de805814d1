"""`switchboard doctor`: checks config, machine and children, and says what to do."""
