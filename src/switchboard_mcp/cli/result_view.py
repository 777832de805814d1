"""Shows the result of a suite call: to a person, as JSON, or saved to files."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.cli.console import one_line
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.local_client import ToolResult
from switchboard_mcp.errors import KINDS, Failure


class _Wrapped(Struct):
    error: Failure


class RenderedBlock(Struct, frozen=True):
    """One content block: text to print, or bytes to save and a note to print instead."""

    text: str
    data: bytes | None = None
    extension: str = ""
    note: bool = False


def failure_of(result: ToolResult) -> Failure | None:
    """Return Switchboard's own failure if the result is one; a child's error result is not."""
    if not result.is_error or result.structured_content is UNSET:
        return None
    try:
        problem = msgspec.json.decode(result.structured_content, type=_Wrapped).error
    except msgspec.DecodeError:
        return None
    return problem if problem.code in KINDS else None


def show_error(problem: Failure, invocation: Invocation) -> int:
    """Print a failure and return the exit code."""
    if invocation.as_json:
        invocation.console.out.json({"error": problem})
    else:
        invocation.console.show_failure(problem)
    return 1


def show_result(result: ToolResult, subtool: str, invocation: Invocation) -> int:
    """Print the result of a subtool; the exit code is 1 if it is an error."""
    console, folder = invocation.console, invocation.args.output
    pieces = [render_block(block) for block in result.content]
    saved = list(save(pieces, subtool, folder)) if folder else []
    code = 1 if result.is_error else 0
    if invocation.as_json:
        console.out.json(result.raw)
        return code
    problem = failure_of(result)
    if problem is not None:
        console.show_failure(problem)
        return code
    screen = console.err if result.is_error else console.out
    paths = iter(saved)
    for piece in pieces:
        if folder and piece.data is not None:
            screen.text(f"saved {next(paths)}", "green")
        else:
            screen.text(piece.text, "dim" if piece.note else "")
    if not pieces and result.structured_content is not UNSET:
        console.err.line("The answer contains structured content only; --json shows it.", "dim")
    elif not pieces and result.is_error:
        console.err.line("The subtool failed without saying why.")
    return code


def render_block(block: dict[str, object]) -> RenderedBlock:
    """Render one content block."""
    kind = _string(block, "type")
    if kind == "text":
        return RenderedBlock(_string(block, "text"))
    if kind in ("image", "audio"):
        return _binary(kind, _string(block, "mimeType"), _string(block, "data"))
    if kind == "resource" and isinstance(block.get("resource"), dict):
        return _resource(msgspec.convert(block["resource"], dict[str, object]))
    if kind == "resource_link":
        note = " ".join(
            filter(None, (_string(block, "name"), _string(block, "uri"), _string(block, "mimeType")))
        )
        return RenderedBlock(f"[resource link {one_line(note)}]", note=True)
    return RenderedBlock(f"[content of type '{one_line(kind)}'; --json shows it]", note=True)


def _resource(resource: dict[str, object]) -> RenderedBlock:
    uri, mime = one_line(_string(resource, "uri")), _string(resource, "mimeType")
    if "blob" in resource:
        return _binary(f"resource {uri}", mime, _string(resource, "blob"))
    data = _string(resource, "text").encode("utf-8", "surrogatepass")
    note = f"[resource {uri} {one_line(mime) or 'text'}, {_size(len(data))}; --output DIR saves it]"
    return RenderedBlock(note, data, _extension(mime) or ".txt", note=True)


def _binary(kind: str, mime: str, encoded: str) -> RenderedBlock:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return RenderedBlock(f"[{kind} {one_line(mime)} with invalid base64; --json shows it]", note=True)
    note = f"[{kind} {one_line(mime)}, {_size(len(data))}; --output DIR saves it]"
    return RenderedBlock(note, data, _extension(mime) or ".bin", note=True)


def save(pieces: list[RenderedBlock], subtool: str, folder: str) -> Iterator[str]:
    """Write every block that is not plain text to a separate file, never overwriting one."""
    name = "".join(character if character.isalnum() or character in "-_" else "_" for character in subtool)
    number = 0
    try:
        os.makedirs(folder, exist_ok=True)
        for piece in pieces:
            if piece.data is None:
                continue
            while True:
                number += 1
                path = os.path.join(folder, f"{name}-{number}{piece.extension}")
                try:
                    with open(path, "xb") as file:
                        file.write(piece.data)
                except FileExistsError:
                    continue
                break
            yield path
    except OSError as problem:
        where = problem.filename or folder
        hint = "Use a writable folder with --output."
        raise usage_error(f"{where}: {problem.strerror}.", hint) from None


def _string(members: dict[str, object], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _extension(mime: str) -> str:
    return mimetypes.guess_extension(mime.partition(";")[0].strip()) or ""


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:,.1f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"
