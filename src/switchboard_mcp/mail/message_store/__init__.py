"""Mail in a database: one row per message, on SQLite or PostgreSQL. Start with `store.MessageStore`.

It takes the place of `mail.store` once the tools and commands use it; until then nothing but its tests imports it.
"""
