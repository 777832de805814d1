"""The helper process of programs: it checks and runs code, confined, one operation at a time. Start with `helper_process`."""
