"""Tables of features and their versions: steps forward only, each in a transaction.

Within a `major` version steps only add tables, columns and indexes, so that an older program can go on beside a newer
one. A program refuses to write to a database with a higher major version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from switchboard_mcp.database.transactions import Connection, Row, StorageError

VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (part TEXT PRIMARY KEY, major INTEGER, version INTEGER)"
READ_VERSIONS = "SELECT part, major, version FROM schema_version"
NEWER = "This workspace was written by a newer Switchboard, so this one does not write to it."
UPDATE = "Update Switchboard here, or start the newer one."


class Part(Struct, frozen=True):
    """The tables of one feature: `steps` create them and change them, and are never edited after a release."""

    name: str
    steps: Sequence[Callable[[Connection], None]]
    major: int = 1


def check(parts: Sequence[Part], stored: Sequence[Row]) -> None:
    """Raise `StorageError` if a newer program with another layout has written here."""
    majors = {part.name: part.major for part in parts}
    if any(major > majors.get(name, major) for name, major, _ in stored):
        raise StorageError(NEWER, UPDATE)


def upgrade(connection: Connection, parts: Sequence[Part]) -> None:
    """Run the missing steps in a transaction that the caller began."""
    connection.define(VERSIONS)
    stored = connection.rows(READ_VERSIONS)
    check(parts, stored)
    versions = {name: version for name, _, version in stored}
    for part in parts:
        first = versions.get(part.name, 0)
        if first >= len(part.steps):
            continue
        for step in part.steps[first:]:
            step(connection)
        connection.run(
            "INSERT INTO schema_version (part, major, version) VALUES (?, ?, ?)"
            " ON CONFLICT (part) DO UPDATE SET major = excluded.major, version = excluded.version",
            part.name,
            part.major,
            len(part.steps),
        )


def is_current(parts: Sequence[Part], stored: Sequence[Row]) -> bool:
    """Return True if no step is missing."""
    versions = {name: version for name, _, version in stored}
    return all(versions.get(part.name, 0) >= len(part.steps) for part in parts)
