"""Prints the command that adds an extra to this installation: a virtual environment, pipx, uv, the system or an image.

Import name and command are `switchboard_mcp` and `switchboard`; the distribution has another name, since the package
`switchboard-mcp` of the public index belongs to another project. Nothing is installed here.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from importlib.util import find_spec
from shlex import quote
from typing import Literal

from msgspec import Struct

DISTRIBUTION = "switchboard-gateway"
# The prefix of our container image: a package that is added to a running container is gone with it.
IMAGE_PREFIX = "/opt/switchboard"

Kind = Literal["image", "pipx", "uv tool", "venv", "managed system", "system"]


class Installation(Struct, frozen=True, kw_only=True):
    """An installation. `source` is the folder or URL it was installed from, if not from an index."""

    kind: Kind
    python: str
    source: str = ""
    extras: tuple[str, ...] = ()  # that are known to be installed
    has_pip: bool = True

    def command(self, extra: str) -> str:
        """Return the command that adds an extra; an empty one repairs the installation."""
        if self.kind == "pipx":
            return f"pipx inject {DISTRIBUTION} {quote(self._target(extra))}"
        if self.kind == "uv tool":
            return f"uv tool install {quote(self._target(*self.extras, extra))}"
        if self.kind == "managed system":
            return f"pipx install {quote(self._target(extra))}"
        target, python = quote(self._target(extra)), quote(self.python)
        if self.kind == "image":
            return f"RUN {python} -m pip install {target}"
        return (
            f"{python} -m pip install {target}"
            if self.has_pip
            else f"uv pip install --python {python} {target}"
        )

    def hint(self, extra: str) -> str:
        """Return a sentence with the command."""
        where = "Add it to the Dockerfile of your image" if self.kind == "image" else "Install it"
        return f"{where}: {self.command(extra)}"

    def _target(self, *extras: str) -> str:
        names = sorted({extra for extra in extras if extra})
        brackets = f"[{','.join(names)}]" if names else ""
        if self.source and "://" not in self.source:
            return f"{self.source}{brackets}"
        return f"{DISTRIBUTION}{brackets}" + (f" @ {self.source}" if self.source else "")


def current_installation() -> Installation:
    """Return the installation that is running."""
    receipt = _read(os.path.join(sys.prefix, "uv-receipt.toml"))
    return Installation(
        kind=_kind(receipt),
        python=sys.executable,
        source=_source(),
        extras=_extras(receipt),
        has_pip=find_spec("pip") is not None,
    )


def install_hint(extra: str) -> str:
    """Return the sentence that says how to add an extra to this installation."""
    return current_installation().hint(extra)


def project_metadata() -> tuple[list[str], str]:
    """Return the requirements without extras and the licence, of the installed distribution or of this checkout."""
    from importlib.metadata import PackageNotFoundError, metadata, requires

    try:
        needed = [
            requirement for requirement in requires(DISTRIBUTION) or [] if "extra ==" not in requirement
        ]
        return needed, str(metadata(DISTRIBUTION).json.get("license_expression", ""))
    except PackageNotFoundError:  # a checkout that is on the path without being installed
        import tomllib

        project = tomllib.loads(_read(os.path.join(_checkout(), "pyproject.toml"))).get("project", {})
        return project.get("dependencies", []), project.get("license", "")


def _kind(receipt: str) -> Kind:
    if sys.prefix == IMAGE_PREFIX and any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))):
        return "image"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return "pipx"
    if receipt:
        return "uv tool"
    if sys.prefix != sys.base_prefix:
        return "venv"
    managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return "managed system" if os.path.exists(managed) else "system"


def _source() -> str:
    """Return the folder or URL that this was installed from, or an empty string for an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json") or ""
    except PackageNotFoundError:
        text = ""
    if match := re.search(r'"url": *"(?:file://)?([^"]+)"', text):
        commit = re.search(r'"commit_id": *"(\w+)"', text)
        vcs = re.search(r'"vcs": *"(\w+)"', text)
        return f"{vcs[1]}+{match[1]}@{commit[1]}" if vcs and commit else match[1]
    return _checkout()


def _checkout() -> str:
    """Return the folder of the repository if this runs from one, or an empty string."""
    folder = os.path.abspath(__file__)
    for _ in range(4):
        folder = os.path.dirname(folder)
    return folder if f'name = "{DISTRIBUTION}"' in _read(os.path.join(folder, "pyproject.toml")) else ""


def _extras(receipt: str) -> tuple[str, ...]:
    """Return the extras that a uv tool was installed with; uv would drop those that are not named again."""
    if not receipt:
        return ()
    import tomllib

    for requirement in tomllib.loads(receipt).get("tool", {}).get("requirements", []):
        if requirement.get("name") == DISTRIBUTION:
            return tuple(requirement.get("extras", []))
    return ()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
