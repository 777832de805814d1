"""Search by meaning, with a model small enough to read: four tokens, two dimensions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from switchboard_mcp.gateway.suites import meaning
from switchboard_mcp.gateway.suites.meaning import TENSOR, TOKENIZER, WEIGHTS, Meaning, open_meaning
from switchboard_mcp.suites.search import Index, SearchDocument

np = pytest.importorskip("numpy")

# Rain and weather point the same way, issue and bug another; "ish" makes a word a little of both.
VECTORS = {
    "▁rain": (1.0, 0.0),
    "▁weather": (0.9, 0.1),
    "▁issue": (0.0, 1.0),
    "▁bug": (0.1, 0.9),
    "ish": (0.5, 0.5),
}
TOOLS = [SearchDocument("a", "weather"), SearchDocument("b", "issue"), SearchDocument("c", "zither")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of a model."""
    pieces = sorted({letter for token in VECTORS for letter in token} | set(VECTORS))
    merges = []
    for token in VECTORS:
        for end in range(1, len(token)):
            if [token[:end], token[end]] not in merges:
                merges.append([token[:end], token[end]])
                pieces.append(token[: end + 1])
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    vectors = np.zeros((len(vocabulary), 2), dtype="<f2")
    for token, vector in VECTORS.items():
        vectors[vocabulary[token]] = vector
    header = {TENSOR: {"dtype": "F16", "shape": vectors.shape, "data_offsets": [0, vectors.nbytes]}}
    written = json.dumps(header).encode()
    for name, data in (
        (WEIGHTS, len(written).to_bytes(8, "little") + written + vectors.tobytes()),
        (TOKENIZER, json.dumps({"model": {"vocab": vocabulary, "merges": merges}}).encode()),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_tool_is_found_by_a_word_that_it_does_not_have(folder: Path) -> None:
    index = Index(TOOLS)
    assert index.search("rain") == []
    found = Meaning(str(folder)).index(index, TOOLS).search("rain", 5)
    assert [hit.place for hit in found] == [0]


def test_a_word_that_a_tool_has_counts_beside_its_meaning(folder: Path) -> None:
    tools = [SearchDocument("a", "weather"), SearchDocument("b", "rain zither")]
    found = Meaning(str(folder)).index(Index(tools), tools).search("zither rain", 5)
    assert [hit.place for hit in found] == [1, 0]


def test_words_without_any_meaning_find_nothing(folder: Path) -> None:
    assert Meaning(str(folder)).index(Index(TOOLS), TOOLS).search("xylophone", 5) == []
    assert Meaning(str(folder)).index(Index([]), []).search("rain", 5) == []


def test_a_word_is_split_into_its_tokens(folder: Path) -> None:
    model = Meaning(str(folder)).model
    assert model.tokens("rainish") == ["▁rain", "ish"]
    assert model.embed("rainish").tolist() == pytest.approx([0.949, 0.316], abs=0.01)
    assert model.embed("").tolist() == [0.0, 0.0]


def test_what_was_learned_counts_with_meaning_too(folder: Path) -> None:
    found = Meaning(str(folder)).index(Index(TOOLS), TOOLS).search("rain", 5, learned={2: 1.0})
    assert {hit.place for hit in found} == {0, 2}


def test_vectors_of_tools_come_from_the_cache_the_second_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache" / "vectors.bin"
    first = Meaning(str(folder), str(cache)).vectors(["rain", "bug"])
    monkeypatch.setattr(meaning.Model, "embed", lambda self, text: pytest.fail(text))
    again = Meaning(str(folder), str(cache)).vectors(["bug", "rain"])
    assert again.tolist() == first[::-1].tolist()
    assert cache.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b"x" * 7, b"x" * 20])
def test_a_damaged_cache_is_not_used(folder: Path, tmp_path: Path, damage: bytes) -> None:
    cache = tmp_path / "vectors.bin"
    cache.write_bytes(damage)
    expected = Meaning(str(folder)).vectors(["rain", "bug"]).tolist()
    for _ in range(2):
        assert Meaning(str(folder), str(cache)).vectors(["rain", "bug"]).tolist() == expected


def test_without_the_extra_there_is_no_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "find_spec", lambda name: None)
    assert open_meaning({}) is None
