"""Repeats the log of a broker on the stderr of its sessions, each line where its users look for it.

Lines about the process of a child go to the sessions that use it. Those that describe the work of one session are
repeated only if there is no other session. All others are about the workspace and go to every session.
"""

from __future__ import annotations

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.registry import ChildRegistry
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.observability.log import Log, LogRecord

# They describe the work of one session, or quote its calls. All others are about the workspace.
SESSION_EVENTS = (
    "ask.",
    "broker.",
    "child.",
    "extensions.",
    "host.",
    "http.internal",
    "internal",
    "middleware.",
    "programs.",
    "sandbox.",
    "serving",
    "stopping",
    "tools.",
)
CHILD_STDERR = "child.stderr"
CONFIG_RELOADED = "config.reloaded"
MAX_START_RECORDS = 100


class SessionLogs:
    """The logs of all sessions, and what was logged before the first of them."""

    def __init__(self, log: Log, registry: ChildRegistry) -> None:
        self._sink = log.sink
        self._own_threshold = log.sink.threshold
        self._registry = registry
        self._logs: dict[Session, Log] = {}
        # Every session gets them, as if its own process had been started.
        self._start_records: list[LogRecord] = []
        self._is_starting = True
        log.sink.listener = self._on_record

    def add(self, session: Session, log: Log) -> None:
        """Repeat records in the log of a session from now on."""
        self._is_starting = False
        self._logs[session] = log
        self._set_threshold()

    def remove(self, session: Session) -> None:
        """Repeat nothing more in the log of a session."""
        del self._logs[session]
        self._set_threshold()

    def keep(self, record: LogRecord) -> None:
        """Keep a record of the start for sessions that join later."""
        if len(self._start_records) < MAX_START_RECORDS and not record.event.startswith("broker."):
            self._start_records.append(record)

    def repeat_start(self, log: Log) -> None:
        """Write the records of the start to the log of a new session."""
        for record in self._start_records:
            log.repeat(record)

    def _set_threshold(self) -> None:
        """Log what any session wants to see, and the process that has started the broker."""
        thresholds = [self._own_threshold, *(log.sink.threshold for log in self._logs.values())]
        self._sink.threshold = min(thresholds)

    def _on_record(self, record: LogRecord) -> None:
        if record.event == CONFIG_RELOADED:
            self._start_records.clear()  # they may be about settings that have changed
        elif self._is_starting:
            self.keep(record)
        for log in self._readers(record):
            log.repeat(record)

    def _readers(self, record: LogRecord) -> list[Log]:
        """Return the logs of the sessions that may see a record."""
        process = record.subject
        is_alone = len(self._logs) == 1
        if isinstance(process, Child) and not (is_alone and process.is_shared):
            users = process.sessions()
            return [log for session, log in self._logs.items() if session in users]
        if record.event == CHILD_STDERR:  # it may be about the call of a session that has ended
            child = self._registry.children.get(str(record.fields.get("child")))
            is_visible = is_alone and child is not None and not child.was_shared
        else:
            is_visible = is_alone or not record.event.startswith(SESSION_EVENTS)
        return list(self._logs.values()) if is_visible else []
