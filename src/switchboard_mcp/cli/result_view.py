"""What came back from a suite call: for a person, for a program, or into files.

Owns how content blocks and failures are shown. It does not know how they were asked for.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.cli.console import one_line
from switchboard_mcp.cli.invocation import Invocation, misuse
from switchboard_mcp.cli.local_client import ToolResult
from switchboard_mcp.errors import KINDS, Failure


class _Wrapped(Struct):
    error: Failure


class Piece(Struct, frozen=True):
    """One content block: a text to print, or bytes to save with a note to print instead."""

    text: str
    data: bytes | None = None
    extension: str = ""
    note: bool = False


def error_of(result: ToolResult) -> Failure | None:
    """Switchboard's own failure where the result is one; a child's error result is none."""
    if not result.is_error or result.structured_content is UNSET:
        return None
    try:
        problem = msgspec.json.decode(result.structured_content, type=_Wrapped).error
    except msgspec.DecodeError:
        return None
    return problem if problem.code in KINDS else None


def show_error(problem: Failure, asked: Invocation) -> int:
    """Tell why there is no answer."""
    if asked.as_json:
        asked.console.out.json({"error": problem})
    else:
        asked.console.complain(problem)
    return 1


def show_result(result: ToolResult, subtool: str, asked: Invocation) -> int:
    """Print what a subtool answered; 1 where it says that it failed."""
    console, folder = asked.console, asked.given.output
    pieces = [piece_of(block) for block in result.content]
    saved = list(save(pieces, subtool, folder)) if folder else []
    code = 1 if result.is_error else 0
    if asked.as_json:
        console.out.json(result.raw)
        return code
    problem = error_of(result)
    if problem is not None:
        console.complain(problem)
        return code
    screen = console.err if result.is_error else console.out
    paths = iter(saved)
    for piece in pieces:
        if folder and piece.data is not None:
            screen.text(f"saved {next(paths)}", "green")
        else:
            screen.text(piece.text, "dim" if piece.note else "")
    if not pieces and result.structured_content is not UNSET:
        console.err.line("The answer holds structured content only; --json shows it.", "dim")
    elif not pieces and result.is_error:
        console.err.line("The subtool failed without saying why.")
    return code


def piece_of(block: dict[str, object]) -> Piece:
    """What to make of one content block."""
    kind = _word(block, "type")
    if kind == "text":
        return Piece(_word(block, "text"))
    if kind in ("image", "audio"):
        return _binary(kind, _word(block, "mimeType"), _word(block, "data"))
    if kind == "resource" and isinstance(block.get("resource"), dict):
        return _resource(msgspec.convert(block["resource"], dict[str, object]))
    if kind == "resource_link":
        told = " ".join(filter(None, (_word(block, "name"), _word(block, "uri"), _word(block, "mimeType"))))
        return Piece(f"[resource link {one_line(told)}]", note=True)
    return Piece(f"[content of type '{one_line(kind)}'; --json shows it]", note=True)


def _resource(resource: dict[str, object]) -> Piece:
    uri, mime = one_line(_word(resource, "uri")), _word(resource, "mimeType")
    if "blob" in resource:
        return _binary(f"resource {uri}", mime, _word(resource, "blob"))
    data = _word(resource, "text").encode("utf-8", "surrogatepass")
    told = f"[resource {uri} {one_line(mime) or 'text'}, {_size(len(data))}; --output DIR saves it]"
    return Piece(told, data, _extension(mime) or ".txt", note=True)


def _binary(kind: str, mime: str, encoded: str) -> Piece:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return Piece(f"[{kind} {one_line(mime)} that is not valid base64; --json shows it]", note=True)
    told = f"[{kind} {one_line(mime)}, {_size(len(data))}; --output DIR saves it]"
    return Piece(told, data, _extension(mime) or ".bin", note=True)


def save(pieces: list[Piece], subtool: str, folder: str) -> Iterator[str]:
    """Write every block that is no plain text into a file of its own; nothing is overwritten."""
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
        hint = "Name a folder that can be written with --output."
        raise misuse(f"{where}: {problem.strerror}.", hint) from None


def _word(members: dict[str, object], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _extension(mime: str) -> str:
    return mimetypes.guess_extension(mime.partition(";")[0].strip()) or ""


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:,.1f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"
