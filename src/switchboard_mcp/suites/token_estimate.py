"""Estimates the number of tokens of a text.

A real tokenizer needs megabytes of tables; a budget only needs a consistent approximation.

The weights were fitted to the o200k vocabulary on 1,915 tools of 65 published MCP servers. Absolute error per tool,
against the real tokenizer:

    compact tool JSON (name, description, schema)   median 2 %, 90th percentile 6 %
    compacted schema with summary                   median 2 %, 90th percentile 5 %
    signature text of 8 tokens or more              median 3 %, 90th percentile 10 %
    names with one-liners                           median 4 %, 90th percentile 10 %
    indented JSON                                   median 2 %, 90th percentile 4 %

Fitted on half of the servers and measured on the other half the figures are the same to within a point. Sums
over many texts run 0 to 5 % low. Text in other scripts is counted by its bytes: 0.7 tokens a Chinese character.
"""

from __future__ import annotations

# The first row of the table above, for people who read figures made with the estimate.
ACCURACY = "2 % off in the median"

LOWER = bytes(range(ord("a"), ord("z") + 1))
UPPER = bytes(range(ord("A"), ord("Z") + 1))
DIGITS = b"0123456789"
MARKS = bytes(code for code in range(33, 127) if code not in LOWER + UPPER + DIGITS)
BEYOND_ASCII = bytes(range(128, 256))


def _only(kept: bytes) -> bytes:
    """Return a table that maps all other bytes to spaces, so that `split` yields the runs of the kept ones."""
    return bytes(code if code in kept else 32 for code in range(256))


WORDS_ONLY = _only(LOWER + UPPER)
NUMBERS_ONLY = _only(DIGITS)
MARKS_ONLY = _only(MARKS)


def estimate(text: str | bytes) -> int:
    """Estimate the number of o200k tokens in `text`. Linear in its length."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    size = len(data)

    def count(kind: bytes) -> int:
        return size - len(data.translate(None, kind))

    def runs(table: bytes) -> int:
        return len(data.translate(table).split())

    cost = (
        0.12 * runs(WORDS_ONLY)
        + 0.071 * count(LOWER)
        + 0.41 * count(UPPER)  # capitals start a new token inside a word
        + 1.1 * runs(NUMBERS_ONLY)
        + 0.29 * count(DIGITS)
        + 0.47 * runs(MARKS_ONLY)
        + 0.34 * count(MARKS)
        + 0.23 * count(BEYOND_ASCII)
        + 0.49 * len(data.split())
        + 0.9 * data.count(b"\n")
    )
    return int(cost + 0.5)
