"""The receipts of a sender: one file each, replaced when there is news.

Reads only. Owns finding and ordering them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from switchboard_mcp.core.letterfile import receipt_for, receipt_name
from switchboard_mcp.mail import files
from switchboard_mcp.mail.letters import Receipt
from switchboard_mcp.mail.tree import Visit

MOST_RECEIPT_BYTES = 65_536
_decoder = msgspec.json.Decoder(Receipt)


def read(visit: Visit, sender: str, message_id: str) -> Receipt | None:
    """The receipt of one message; None where there is none that can be read."""
    if not visit.has("outbox", sender):
        return None
    found = files.read(visit.folder("outbox", sender), receipt_name(message_id), MOST_RECEIPT_BYTES)
    if isinstance(found, files.Unfit):
        return None
    try:
        return _decoder.decode(found.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def message_ids(visit: Visit, sender: str) -> list[str]:
    """Every message of this sender that has a receipt."""
    if not visit.has("outbox", sender):
        return []
    found = (receipt_for(name) for name, _ in files.entries(visit.folder("outbox", sender)))
    return [each for each in found if each is not None]


def newest(visit: Visit, sender: str, ids: Sequence[str] | None, limit: int) -> list[Receipt]:
    """The receipts asked for, the newest news first."""
    if ids is None:
        folder = visit.folder("outbox", sender) if visit.has("outbox", sender) else -1
        dated = [
            (files.changed(folder, receipt_name(each)) or 0.0, each) for each in message_ids(visit, sender)
        ]
        ids = [each for _, each in sorted(dated, reverse=True)[: max(0, limit)]]
    found = (read(visit, sender, each) for each in ids[: max(0, limit)])
    return [receipt for receipt in found if receipt is not None]
