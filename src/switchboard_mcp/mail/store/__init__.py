"""Mail in a database: one row per message, on SQLite or PostgreSQL. Start with `store.MessageStore`."""
