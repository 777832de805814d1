"""Skills (`io.modelcontextprotocol/skills`) on the wire: entries of `skills/list` and the files they name.

A skill is a folder of files below `skill://`; its entry names each of them with digest and size. Behind the gateway the
URIs have the name of the child, and nothing else of an entry changes: the digests are those of the server. Pure.

The extension is defined for stateless servers. A server with handshakes may offer the files of a skill as resources,
`skill://<path>/SKILL.md` among them; its entry is then built from these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import decode_members

EXTENSION = "io.modelcontextprotocol/skills"
LIST = "skills/list"
SCHEME = "skill://"
MAIN_FILE, MANIFEST = "/SKILL.md", "/_manifest"
# Hosts must accept as many files in a skill; more are left out.
MAX_FILES = 512

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


class _Content(Struct):
    text: str | UnsetType = msgspec.UNSET
    blob: bytes | UnsetType = msgspec.UNSET  # decoded from Base64


class _Contents(Struct):
    contents: list[_Content] = []


class _ManifestFile(Struct):
    path: str
    size: int
    hash: str


class _Manifest(Struct):
    files: list[_ManifestFile] = []


_decode_contents = msgspec.json.Decoder(_Contents).decode
_decode_manifest = msgspec.json.Decoder(_Manifest).decode
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


def read_content(result: Raw | bytes) -> bytes | None:
    """Return the bytes of the only content of a resource, or None if they cannot be read."""
    try:
        (content,) = _decode_contents(result).contents
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    if not isinstance(content.blob, UnsetType):
        return content.blob
    return content.text.encode("utf-8", "surrogatepass") if not isinstance(content.text, UnsetType) else None


def describe_file(uri: str, body: bytes) -> dict[str, object]:
    """Return the entry of one file, with its digest."""
    from hashlib import sha256

    return {"uri": uri, "digest": f"sha256:{sha256(body).hexdigest()}", "size": len(body)}


def read_manifest(folder: str, body: bytes) -> list[dict[str, object]]:
    """Return the files that a manifest lists, as FastMCP writes it; empty if it cannot be read."""
    try:
        files = _decode_manifest(body).files[:MAX_FILES]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [
        {
            "uri": f"{folder}/{file.path}",
            "digest": f"sha256:{file.hash.removeprefix('sha256:')}",
            "size": file.size,
        }
        for file in files
    ]


def read_frontmatter(body: bytes) -> dict[str, str]:
    """Return the plain values in the head of a `SKILL.md`; lists and nested values are left out."""
    lines = body.decode("utf-8", "replace").lstrip("\ufeff").splitlines()[:200]
    fields: dict[str, str] = {}
    if not lines or lines[0].strip() != "---":
        return fields
    for line in lines[1:]:
        if line.strip() == "---":
            return fields
        name, colon, value = line.partition(":")
        value = value.strip()
        if colon and value and name.strip() == name and not value.startswith(("[", "{", "|", ">", "&", "*")):
            is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            fields[name] = value[1:-1] if is_quoted else value
    return {}


def build_entry(uri: str, main: bytes, files: list[dict[str, object]]) -> Raw | None:
    """Return the entry for a skill whose files are resources, or None if its main file is not that of a skill."""
    frontmatter = read_frontmatter(main)
    if not frontmatter.get("name") or not frontmatter.get("description"):
        return None
    own = files if any(file["uri"] == uri for file in files) else [describe_file(uri, main), *files]
    return Raw(_encode({"uri": uri, "frontmatter": frontmatter, "resources": own}))


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
