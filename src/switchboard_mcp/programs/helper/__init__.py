"""The helper process of programs: checks and runs code, confined, one operation at a time. Start with `serving`."""
