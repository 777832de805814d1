"""The transports on which hosts connect: stdio, HTTP, and the dashboard."""
