"""Finds out which other users may write a file or folder: by owner, mode and POSIX ACL.

The only place that decides this. Root and the current user do not count as others. ACLs are read on Linux; elsewhere,
and for the ACLs of NFSv4, the mode counts alone.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable
from itertools import chain

ACCESS_ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
# From linux/posix_acl_xattr.h: a version, then entries of tag, permissions and id.
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_USER, _OWNING_GROUP, _GROUP, _MASK, _OTHER = 0x02, 0x04, 0x08, 0x10, 0x20
_WRITE = 0x2
_NO_ACL = (errno.ENODATA, errno.ENOTSUP)


class WriteAccess:
    """Decides with a cache of groups. Short-lived: members of a group may change."""

    def __init__(self) -> None:
        self._private: dict[tuple[int, int], bool] = {}

    def others(self, path: str | int, status: os.stat_result, *, entries: bool = False) -> str:
        """Return which other users may change a file or folder, or an empty string. Raises OSError.

        `status` is that of `path` (or an open descriptor), which for a link is the link itself. In a sticky folder only
        the owner of an entry can replace it; with `entries`, other users must not be able to add one either.
        """
        mode = status.st_mode
        if status.st_uid not in (0, os.geteuid()):
            return "belongs to another user"
        if stat.S_ISLNK(mode):
            return ""  # its mode means nothing
        folder = stat.S_ISDIR(mode)
        if entries or not (folder and mode & stat.S_ISVTX):
            if mode & stat.S_IWOTH:
                return "is writable by everybody"
            # The group bits of the mode are the mask of the ACL: without this one, it lets no one else write.
            if mode & stat.S_IWGRP and (who := self._by_group_or_acl(path, status)):
                return f"is writable by {who}"
        if folder and (who := self._in_acl(_read_acl(path, DEFAULT_ACL), status)):
            return f"makes new files writable by {who} (default ACL)"
        return ""

    def _by_group_or_acl(self, path: str | int, status: os.stat_result) -> str:
        acl = _read_acl(path, ACCESS_ACL)
        if acl is None or acl:
            return self._in_acl(acl, status)
        return "" if self._is_private(status.st_gid, status.st_uid) else "a group"

    def _in_acl(self, acl: Iterable[tuple[int, int, int]] | None, status: os.stat_result) -> str:
        """Return who else may write by an ACL, or an empty string."""
        if acl is None:
            return "an ACL that cannot be read"
        entries = list(acl)
        mask = next((permissions for tag, permissions, _ in entries if tag == _MASK), _WRITE)
        for tag, permissions, number in entries:
            if not permissions & _WRITE:
                continue
            if tag == _OTHER:
                return "everybody"
            if not mask & _WRITE:
                continue
            if tag == _USER and number not in (0, os.geteuid()):
                return f"user {number} (ACL)"
            if tag == _GROUP and not self._is_private(number, status.st_uid):
                return f"group {number} (ACL)"
            if tag == _OWNING_GROUP and not self._is_private(status.st_gid, status.st_uid):
                return "a group"
        return ""

    def _is_private(self, group: int, user: int) -> bool:
        key = (group, user)
        if key not in self._private:
            self._private[key] = is_private_group(group, user)
        return self._private[key]


def _read_acl(path: str | int, name: str) -> list[tuple[int, int, int]] | None:
    """Return the entries of an ACL: empty if there is none, None if it is not understood."""
    if not hasattr(os, "getxattr"):
        return []
    try:
        value = os.getxattr(path, name)
    except OSError as problem:
        if problem.errno in _NO_ACL:
            return []
        raise
    if value[:4] != _VERSION or (len(value) - 4) % _ENTRY.size:
        return None
    return list(_ENTRY.iter_unpack(value[4:]))


def other_writers(path: str | int, status: os.stat_result, *, entries: bool = False) -> str:
    """Check one path; see `WriteAccess.others`."""
    return WriteAccess().others(path, status, entries=entries)


def is_private_group(group: int, user: int) -> bool:
    """Return True if no user but this one and root is a member of the group."""
    import grp
    import pwd

    try:
        owner = pwd.getpwuid(user).pw_name
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    primary = (entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group and entry.pw_uid != 0)
    return set(chain(members, primary)) <= {owner, "root"}
