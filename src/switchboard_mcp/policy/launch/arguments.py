"""Finds the files, folders and programs that the arguments of a command name.

Any program may run what an argument names, so each of these is pinned, or approved as data. Options are not known here:
whatever part of an argument could be a path, and exists, is taken for one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

from switchboard_mcp.policy.launch.containers import mounted_folders
from switchboard_mcp.policy.launch.text_rules import (
    CONTAINERS,
    INTERPRETERS,
    RUNNERS,
    SHELLS,
    interpreter_flaw,
    program_name,
)

# `--opt=FILE`, `@FILE`, `key=FILE,other`, `file:FILE`, `FILE:FILE`, `perl -e code` in one word.
_DELIMITER = re.compile(r"[=,:;@\s\"']")
# A word with more delimiters than this has its pieces, beginnings and ends examined, and not all that is between.
_MAX_DELIMITERS = 16
_BARE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
# Frequent as values of options, and harmless if they were run.
_HARMLESS = frozenset(
    "[ arch basename cat cksum comm cut date df dir dirname du echo expr factor false file fmt fold free groups head "
    "host hostid hostname id info join link ln local locale logname look ls md5sum mkdir nl nproc od paste pr printf "
    "ps pwd readlink realpath rev seq size sleep stat stty sum sync tac tail tee test touch tr tree true tty uname "
    "uniq unlink uptime users vdir w wc who whoami yes".split()
)
_NULL = "/dev/null"


class NamedPath(Struct, frozen=True):
    """A path that an argument names. `index` is that of the argument."""

    index: int
    path: str
    kind: Literal["file", "folder", "program", "mount"]

    def is_data(self, data: Sequence[str]) -> bool:
        """Return True if the path is, or is in, one of the paths that are approved as data. Programs never are.

        A link must lead to approved data too: whoever replaces a folder by a link must not choose what is reached.
        """
        return self.kind != "program" and all(
            any(f"{path}/".startswith(f"{place.rstrip('/')}/") for place in data)
            for path in (self.path, os.path.realpath(self.path))
        )


class ArgumentFlaw(Struct, frozen=True):
    """The reason why an argument is not allowed."""

    index: int
    why: str


def find_named(
    program: str, args: Sequence[str], folder: str, environ: Mapping[str, str]
) -> Iterator[NamedPath | ArgumentFlaw]:
    """Yield all that the arguments of a program name, and what is not allowed. `environ` is the child's."""
    if program_name(program) in CONTAINERS:
        for index, path in mounted_folders(args):
            yield NamedPath(index, os.path.normpath(path), "mount")
        return
    for index, word in enumerate(args):
        for path in sorted(possible_paths(word, folder, environ)):
            if path == _NULL or not os.path.exists(path):
                continue
            yield NamedPath(index, path, "folder" if os.path.isdir(path) else "file")
            if os.path.isfile(path) and (flaw := _program_flaw(path, args[index + 1 :])):
                yield ArgumentFlaw(index, flaw)
        yield from _programs(index, word, args[index + 1 :], environ)


def possible_paths(word: str, folder: str, environ: Mapping[str, str]) -> set[str]:
    """Return all paths that an argument could name, whether they exist or not."""
    return {os.path.normpath(os.path.join(folder, name)) for name in _candidates(word, environ)}


def _programs(
    index: int, word: str, following: Sequence[str], environ: Mapping[str, str]
) -> Iterator[NamedPath | ArgumentFlaw]:
    """Yield the programs of the PATH that an argument names."""
    pieces = _DELIMITER.split(word)
    for number, name in enumerate(pieces):
        if not _BARE.fullmatch(name) or name in _HARMLESS:
            continue
        path = shutil.which(name, path=environ.get("PATH", os.defpath))
        if path is None or not os.path.isabs(path):
            continue
        yield NamedPath(index, os.path.normpath(path), "program")
        inner = [piece for piece in pieces[number + 1 :] if piece]
        if flaw := _program_flaw(path, inner or (following if number == len(pieces) - 1 else ())):
            yield ArgumentFlaw(index, flaw)


def _program_flaw(path: str, following: Sequence[str]) -> str:
    """Return why a program must not be named in the arguments of another one, or an empty string."""
    for name in {program_name(path), program_name(os.path.realpath(path))}:
        if name in SHELLS:
            return f"names a shell ({name}); no shell is ever run"
        if name in RUNNERS:
            return f"names the package runner {name}, which looks up what it runs at each start"
        flaw = interpreter_flaw(name, following) if following else None
        if flaw is None and name in INTERPRETERS and "-m" in following:
            flaw = (0, "`-m` runs a module that is not pinned")
        if flaw is not None:
            return f"names the interpreter {name}: {flaw[1]}; write it as the command"
    return ""


def _candidates(word: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield everything in an argument that could be a path."""
    for text in {word, unquote(word)} if "%" in word else {word}:
        for span in {text, *_spans(text)}:
            if span.startswith("-"):
                yield from _glued(span)
            if span == "~" or span.startswith("~/"):
                yield environ.get("HOME", "/") + span[1:]
            if span and len(span) < 4096:  # the system knows no longer path
                yield span


def _spans(word: str) -> Iterator[str]:
    """Yield the parts of a word between two of its delimiters, near ones or not."""
    marks = [match.start() for match in _DELIMITER.finditer(word)]
    starts, ends = [0, *(mark + 1 for mark in marks)], [*marks, len(word)]
    for first, start in enumerate(starts):
        for last in range(first, len(ends)):
            if len(marks) <= _MAX_DELIMITERS or first in (0, last) or last == len(marks):
                yield word[start : ends[last]]


def _glued(word: str) -> Iterator[str]:
    """Yield the values that an option may have in the same word: `-fFILE`, `-nfFILE`, `-I/folder`, `--opt/file`."""
    if not word.startswith("--"):
        yield from (word[at:] for at in range(2, min(len(word), 8)) if word[at:] not in (".", "/"))
    slash = word.find("/")
    if slash > 0:
        yield word[slash:]
