"""Skills (`io.modelcontextprotocol/skills`) on the wire: entries of `skills/list` and the files they name.

A skill is a folder of files below `skill://`; its entry names each of them with digest and size. Behind the gateway the
URIs have the name of the child, and nothing else of an entry changes: the digests are those of the server. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import decode_members

EXTENSION = "io.modelcontextprotocol/skills"
LIST = "skills/list"
SCHEME = "skill://"

_encode = msgspec.json.encode


class _Frontmatter(Struct):
    name: str = ""
    description: str = ""


class _File(Struct):
    uri: str = ""


class Skill(Struct):
    """An entry of `skills/list`. `resources` are the files, or the word `dynamic`."""

    uri: str
    frontmatter: _Frontmatter = msgspec.field(default_factory=_Frontmatter)
    resources: list[_File] | str | UnsetType = msgspec.UNSET

    @property
    def folder(self) -> str:
        """The URI of the folder, with a slash at its end."""
        return self.uri.rpartition("/")[0] + "/"

    def has_file(self, uri: str) -> bool:
        """Return True if a file belongs to the skill; of a dynamic one, any below its folder."""
        if isinstance(self.resources, list):
            return uri == self.uri or any(file.uri == uri for file in self.resources)
        return uri.startswith(self.folder)

    def has_folder(self, uri: str) -> bool:
        """Return True if a folder has files of the skill somewhere below it."""
        start = uri.rstrip("/") + "/"
        files = self.resources if isinstance(self.resources, list) else []
        return self.uri.startswith(start) or any(file.uri.startswith(start) for file in files)


_decode_skill = msgspec.json.Decoder(Skill).decode


def offers_skills(capabilities: Mapping[str, Raw]) -> bool:
    """Return True if a server with these capabilities has skills."""
    return EXTENSION in _settings(capabilities)


def offers_directories(capabilities: Mapping[str, Raw]) -> bool:
    """Return True if such a server lists the files of a folder."""
    settings = _settings(capabilities).get(EXTENSION)
    try:
        return settings is not None and decode_members(settings).get("directoryRead") == Raw(b"true")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _settings(capabilities: Mapping[str, Raw]) -> dict[str, Raw]:
    try:
        return decode_members(capabilities["extensions"]) if "extensions" in capabilities else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def read_skill(entry: Raw) -> Skill | None:
    """Return an entry of `skills/list`, or None if it cannot be read."""
    try:
        return _decode_skill(entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def rename_skill(entry: Raw, rename: Callable[[str], str]) -> Raw:
    """Return an entry with other URIs."""
    members = decode_members(entry)
    if "uri" in members:
        members["uri"] = _renamed(members["uri"], rename)
    if "resources" in members:
        members["resources"] = _renamed_entries(members["resources"], rename)
    return Raw(_encode(members))


def rename_result(result: Raw, rename: Callable[[str], str]) -> Raw:
    """Return the result of `skills/get` or `resources/directory/read` with other URIs."""
    try:
        members = decode_members(result)
        if "skill" in members:
            members["skill"] = rename_skill(members["skill"], rename)
        if "resources" in members:
            members["resources"] = _renamed_entries(members["resources"], rename)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return result
    return Raw(_encode(members))


def _renamed_entries(entries: Raw, rename: Callable[[str], str]) -> Raw:
    try:
        listed = msgspec.json.decode(entries, type=list[dict[str, Raw]])
    except (msgspec.DecodeError, UnicodeDecodeError):  # `dynamic`
        return entries
    return Raw(
        _encode(
            [{**file, "uri": _renamed(file["uri"], rename)} if "uri" in file else file for file in listed]
        )
    )


def _renamed(value: Raw, rename: Callable[[str], str]) -> Raw:
    try:
        return Raw(_encode(rename(msgspec.json.decode(value, type=str))))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value
