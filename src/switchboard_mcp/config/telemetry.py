"""The settings of telemetry. The text under a field is its description in the published JSON Schema."""

from __future__ import annotations

from msgspec import Struct


class TelemetrySettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What can be measured from outside. `/metrics` of the HTTP front counts without any of this."""

    metrics: bool = False
    """Time every request to a child; `/metrics` then has how long they took, by child, method and outcome."""
    public: bool = False
    """Serve `/metrics` without a token. Whoever reaches the port then sees the names of children and how busy they
    are."""
    otel: bool = False
    """Send traces and metrics with OpenTelemetry. Where to is said by the variables of its own, such as
    `OTEL_EXPORTER_OTLP_ENDPOINT`; needs the extra `otel`."""

    @property
    def is_on(self) -> bool:
        """Whether any of it is wanted."""
        return self.metrics or self.public or self.otel
