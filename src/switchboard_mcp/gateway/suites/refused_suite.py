"""Suites that governed mode refuses: those of denied children, and every suite while Switchboard is not enabled.

Loaded in governed mode only. `policy` decides; this module answers the host. While Switchboard is not enabled, tools
stay listed so hosts see what there will be, and a call says what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from switchboard_mcp.config.models import Config
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.incoming import refuse_call
from switchboard_mcp.gateway.suites.suite_tools import Shape, Suite
from switchboard_mcp.suites.suite_names import suite_names

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams


class RefusedSuite:
    """A suite that is listed and refuses every call."""

    def __init__(self, gateway: Gateway, suite: Suite, problem: Failure) -> None:
        self.name = suite.name
        self.source = suite.source
        self._gateway = gateway
        self._suite = suite
        self._problem = replace(problem, child=suite.source)

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the descriptor of the suite itself."""
        return self._suite.descriptor(shape)

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Refuse the call and record it."""
        self._gateway.record_refusal(session, self.source, params.arguments.subtool, self._problem)
        refuse_call(session, channel, id, params.meta, self._problem)


def govern(gateway: Gateway, config: Config, absent: Mapping[str, Failure], disabled: Failure | None) -> None:
    """Apply the decisions of governed mode to all views of a gateway."""
    configured = {name: suite.suite_name for name, suite in config.suites.items()}
    names = suite_names([(name, configured.get(name, "")) for name in sorted(absent)], gateway.all_suites)
    for view in gateway.all_views():
        view.absent.update(
            (names[child], problem) for child, problem in absent.items() if view.may_see(child, names[child])
        )
        if disabled is not None:
            refused = {name: RefusedSuite(gateway, suite, disabled) for name, suite in view.tools.items()}
            view.tools.update(refused)
