"""Similarity of meaning between queries and tools, with the static embeddings of the extra `meaning`.

A text's vector is the mean of the vectors of its tokens, so a query costs no more than a few table lookups. Vectors and
tokens are read from the data files of the package `wordllama`, which is not imported: its code would load more packages
than it needs and set up logging. Vectors of tools are cached on disk by a hash of their text. Everything here runs in
the work thread or in a command, never on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from heapq import nsmallest
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from switchboard_mcp.children.catalog import cache_folder
from switchboard_mcp.suites.search import Index, SearchDocument, SearchHit
from switchboard_mcp.suites.text_analysis import words

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = os.path.join("weights", "l2_supercat_256.safetensors")
TOKENIZER = os.path.join("tokenizers", "l2_supercat_tokenizer_config.json")
TENSOR = "embedding.weight"
# A tool whose words match as well as those of the best has 1 from them, and up to this much more from its meaning.
MEANING_WORTH = 1.0
# Tools without a common word must be at least this similar; below, nearly everything is.
MIN_SIMILARITY = 0.3
# Of one text, this much has a vector.
MAX_TEXT_CHARS = 700
# Tools that are considered for their meaning alone.
MAX_SIMILAR = 50
# Words whose vectors are kept in memory.
MAX_WORDS = 20_000
# Longer ones are not words; merging takes quadratic time.
MAX_WORD_CHARS = 40
SPACE = "▁"
# A cache file beyond this size is started anew. A vector takes 528 bytes.
MAX_CACHE_BYTES = 64 * 1024 * 1024
HASH_BYTES = 16


def is_installed() -> bool:
    """Return whether the extra is installed."""
    return find_spec("wordllama") is not None and find_spec("numpy") is not None


def open_meaning(environ: Mapping[str, str]) -> Meaning | None:
    """Return the similarity of meaning; None without the extra. Nothing is loaded before the first search."""
    if not is_installed():
        return None
    spec = find_spec("wordllama")
    package = os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else ""
    folder = cache_folder(environ)
    return Meaning(package, os.path.join(folder, "meaning-wordllama-256.bin") if folder else "")


class Meaning:
    """Embeds texts with the model in a folder, and caches the vectors of tools in a file."""

    def __init__(self, folder: str, cache_file: str = "") -> None:
        self._folder = folder
        self._cache_file = cache_file
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """The model, loaded on first use."""
        if self._model is None:
            self._model = Model(self._folder)
        return self._model

    def index(self, index: Index, documents: Sequence[SearchDocument]) -> MeaningIndex:
        """Return an index that searches by words and by meaning."""
        return MeaningIndex(index, self.model, self.vectors([_text(document) for document in documents]))

    def vectors(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return the vectors of tools, from the cache as far as it has them."""
        import numpy as np

        keys = [sha256(text.encode("utf-8", "surrogatepass")).digest()[:HASH_BYTES] for text in texts]
        cached = self._read_cache()
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in cached}
        added = {key: self.model.embed(text).astype(np.float16) for key, text in missing.items()}
        if added:
            self._append_to_cache(added)
            cached.update(added)
        size = self.model.size
        return np.array([cached[key] for key in keys], dtype=np.float32).reshape(len(keys), size)

    def _read_cache(self) -> dict[bytes, NDArray[Any]]:
        import numpy as np

        width = HASH_BYTES + 2 * self.model.size
        try:
            with open(self._cache_file, "rb") as file:
                data = file.read(MAX_CACHE_BYTES)
        except OSError:
            return {}
        rows = np.frombuffer(data[: len(data) // width * width], dtype=np.uint8).reshape(-1, width)
        return {row[:HASH_BYTES].tobytes(): row[HASH_BYTES:].view(np.float16) for row in rows}

    def _append_to_cache(self, added: Mapping[bytes, NDArray[Any]]) -> None:
        """Append whole records. A file that a crash left with a part of one is started anew."""
        if not self._cache_file:
            return
        data = b"".join(key + vector.tobytes() for key, vector in added.items())
        width = HASH_BYTES + 2 * self.model.size
        try:
            os.makedirs(os.path.dirname(self._cache_file), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._cache_file, flags, 0o600)
        except OSError:
            return
        with open(descriptor, "ab") as file:
            size = os.fstat(descriptor).st_size
            if size % width or size + len(data) > MAX_CACHE_BYTES:
                os.ftruncate(descriptor, 0)
            file.write(data)


class Model:
    """Vectors of tokens, and the rules that split words into tokens (byte pair encoding)."""

    def __init__(self, folder: str) -> None:
        import numpy as np

        with open(os.path.join(folder, TOKENIZER), "rb") as file:
            rules = msgspec.json.decode(file.read())["model"]
        self._ids: dict[str, int] = rules["vocab"]
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in rules["merges"])
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(pairs)}
        path = os.path.join(folder, WEIGHTS)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = msgspec.json.decode(file.read(length))[TENSOR]
        rows, self.size = header["shape"]
        start = 8 + length + header["data_offsets"][0]
        self._vectors = np.memmap(path, dtype="<f2", mode="r", offset=start, shape=(rows, self.size))
        self._words: dict[str, tuple[NDArray[Any], int]] = {}

    def embed(self, text: str) -> NDArray[Any]:
        """Return the vector of a text, of length 1; zeros if it has no known token."""
        import numpy as np

        total, count = np.zeros(self.size, dtype=np.float32), 0
        for word in text[:MAX_TEXT_CHARS].split():
            vector, tokens = self._word(word[:MAX_WORD_CHARS])
            total += vector
            count += tokens
        norm = float(np.linalg.norm(total))
        return total / norm if count and norm else total

    def _word(self, word: str) -> tuple[NDArray[Any], int]:
        """Return the sum of the vectors of a word's tokens, and their number."""
        import numpy as np

        cached = self._words.get(word)
        if cached is None:
            if len(self._words) >= MAX_WORDS:
                self._words.clear()
            ids = [self._ids[token] for token in self.tokens(word) if token in self._ids]
            cached = self._words[word] = (
                self._vectors[ids].astype(np.float32).sum(axis=0) if ids else np.zeros(self.size, np.float32),
                len(ids),
            )
        return cached

    def tokens(self, word: str) -> list[str]:
        """Split a word into tokens: the pair that ranks best is merged first."""
        parts = list(SPACE + word)
        while len(parts) > 1:
            ranked = [
                (rank, place)
                for place, pair in enumerate(pairwise(parts))
                if (rank := self._ranks.get(pair)) is not None
            ]
            if not ranked:
                break
            _, place = min(ranked)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return parts


class MeaningIndex:
    """Searches by words and by meaning. Both count: words for names and codes, meaning for what is called otherwise."""

    def __init__(self, index: Index, model: Model, vectors: NDArray[Any]) -> None:
        self._index = index
        self._model = model
        self._vectors = vectors

    def search(self, query: str, limit: int, learned: Mapping[int, float] = {}) -> list[SearchHit]:
        """Return the best entries, best first."""
        import numpy as np

        scores = self._index.scores(query, learned)
        best = max(scores.values(), default=1.0)
        # Not `@`: the threads of BLAS take a second instead of a millisecond if all cores are busy.
        similarity = np.einsum("ij,j->i", self._vectors, self._model.embed(query))
        count = min(MAX_SIMILAR, len(similarity))
        nearest: list[int] = np.argpartition(-similarity, count - 1)[:count].tolist() if count else []
        alone = [place for place in nearest if similarity[place] >= MIN_SIMILARITY]
        fused = {
            place: scores.get(place, 0.0) / best + MEANING_WORTH * float(similarity[place])
            for place in {*scores, *alone}
        }
        ranked = nsmallest(limit, fused.items(), key=lambda item: (-item[1], item[0]))
        return [SearchHit(place, score) for place, score in ranked]


def _text(document: SearchDocument) -> str:
    """Return the text of a tool that has a vector."""
    return f"{' '.join(words(document.name))}. {document.description}"[:MAX_TEXT_CHARS]
