"""Server-side transports for hosts (stdio and HTTP), and the dashboard."""
