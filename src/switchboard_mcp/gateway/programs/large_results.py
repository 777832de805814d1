"""Results that are too large for a program: they stay at the gateway, and the program reads parts by JMESPath."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct
from msgspec.json import encode

from switchboard_mcp.gateway.results.handles import HandleEntry, new_handle, open_store
from switchboard_mcp.programs.engine import Settled
from switchboard_mcp.suites.results.answers import read_result
from switchboard_mcp.suites.results.select import compile_select
from switchboard_mcp.system.work_thread import checkpoint

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import Session

# A larger result stays here. As a value of the interpreter it would take several times its size.
MAX_RESULT_BYTES = 1024 * 1024
KEEP_S = 1_800


class _Response(Struct):
    result: Raw = Raw(b"{}")


_decode = msgspec.json.Decoder(_Response).decode


def keep_result(session: Session, child: str, subtool: str, response: bytes) -> Settled:
    """Keep a result that is too large for a program, and return the exception that names its handle."""
    result = bytes(_decode(response).result)
    entry = HandleEntry(
        handle=new_handle(),
        session=session,
        suite=child,
        subtool=subtool,
        form="",
        shown=0,
        tokens=len(result) // 4,
        size=len(result),
        body=result,
    )
    open_store(session.broker).put(entry, KEEP_S)
    message = (
        f"The result of {subtool} has {len(result) // 1024:,} KiB, more than a program takes. Read a part of it: "
        f"await switchboard.select(handle='{entry.handle}', query='JMESPath')"
    )
    return Settled(raised="RuntimeError", message=message)


def selected_part(entry: HandleEntry, query: str) -> Settled:
    """Return a part of a kept result. Raises `SelectError`, or `ValueError` if it is not JSON."""
    kept = read_result(entry.read())
    if kept is None:
        raise ValueError("no content")
    part = encode(compile_select(query).apply(kept.value(), checkpoint))
    if len(part) > MAX_RESULT_BYTES:
        return Settled(raised="RuntimeError", message="The selected part is still too large.")
    return Settled(value=part)
