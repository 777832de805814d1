"""The settings of the bus. The text under a field is its description in the published JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

URL_VARIABLE = "SWITCHBOARD_BUS_URL"


class BusTls(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """TLS to Redis, for a `rediss://` address. Files as seen from the folder of the workspace."""

    ca_file: str = ""
    """Certificates to trust, instead of those of the system."""
    cert_file: str = ""
    """Our own certificate, where Redis wants one."""
    key_file: str = ""
    """The key of that certificate."""


class BusSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Mail between machines, over Redis Streams (or Valkey). Off while there is no address."""

    url: str = ""
    """`redis://HOST:PORT/DB` or `rediss://…`; SWITCHBOARD_BUS_URL in the environment goes before it."""
    user: str = ""
    """The ACL user, where the address names none."""
    prefix: str = "switchboard"
    """What the keys in Redis begin with: the same for all machines of one workspace, another for another one. Letters,
    digits, `_`, `.` and `-`."""
    tls: BusTls = BusTls()
    """TLS to Redis."""

    @property
    def enabled(self) -> bool:
        """Whether there is a bus."""
        return bool(self.url)


def settled(settings: BusSettings, environ: Mapping[str, str], folder: str = "") -> BusSettings:
    """The settings with what the environment says, and with files as seen from the folder of the workspace."""
    url = environ.get(URL_VARIABLE, "").strip()
    if not url and settings.tls == BusTls():
        return settings
    from msgspec.structs import asdict, replace

    files = {name: os.path.join(folder, file) for name, file in asdict(settings.tls).items() if file}
    return replace(settings, url=url or settings.url, tls=replace(settings.tls, **files))
