"""Faults of starting, shaking hands and ending. Each function serves one faulty child until it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from tests.children.plain_child import Child, Json, complain, dump, lines, record, send, text, tool, write

FOREVER = 3600.0


def never_answers() -> None:
    """Reads everything and says nothing."""
    for _ in lines():
        pass


def exits_at_once(code: str = "7") -> None:
    """Writes two lines to stderr and exits with CODE."""
    complain("faulty: no licence found")
    complain("faulty: giving up")
    sys.exit(int(code))


def slow_start(seconds: str = "1") -> None:
    """Sleeps SECONDS before it looks at its input."""
    time.sleep(float(seconds))
    Child().serve()


def deaf() -> None:
    """Ignores SIGTERM, SIGINT, SIGHUP and the end of its input."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Child().serve()
    time.sleep(FOREVER)


def detaches(pid_file: str, *how: str) -> None:
    """Leaves a deaf grandchild, its pid in PID_FILE; HOW: `twice` forks again, `clean` empties its env, `deaf` too."""
    watch, hold = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if "twice" in how and os.fork() != 0:
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for fd in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        record(pid_file)
        sleep = [sys.executable, "-S", "-c", f"import time; time.sleep({FOREVER})"]
        os.execve(sys.executable, sleep, {} if "clean" in how else dict(os.environ))
    os.close(hold)
    os.read(watch, 1)  # ends when the grandchild has written its pid and become another program
    if "twice" in how:
        os.waitpid(child, 0)
    if "deaf" in how:
        deaf()
    Child().serve()


def crashes_on(nth: str = "1") -> None:
    """Exits with code 3 and a line on stderr in the middle of its NTH call."""

    class Crashes(Child):
        calls = 0

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            self.calls += 1
            if self.calls >= int(nth):
                complain(f"faulty: crashed on call {self.calls}")
                os._exit(3)
            super().call(request_id, params, line)

    Crashes().serve()


def dies_inside(share: str = "0.5") -> None:
    """Dies by SIGKILL after it has written a SHARE of its answer to a call."""

    class Dies(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            body = dump({"id": request_id, "result": text("x" * 200_000)})
            write(body[: int(len(body) * float(share))])
            os.kill(os.getpid(), signal.SIGKILL)

    Dies().serve()


def closes_stdin() -> None:
    """Answers the first call, closes stdin and lives on."""

    class Closes(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            os.close(0)
            super().call(request_id, params, line)
            time.sleep(FOREVER)

    Closes().serve()


def closes_stdout() -> None:
    """Closes stdout at the first call and lives on."""

    class Closes(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            os.close(1)
            time.sleep(FOREVER)

    Closes().serve()


def stops_reading(after: str = "0") -> None:
    """Reads AFTER messages (answering them), then never reads again; 0 never reads at all."""
    left = int(after)
    child = Child()
    for line in lines() if left else iter(()):
        child.receive(json.loads(line), line)
        left -= 1
        if not left:
            break
    time.sleep(FOREVER)


def unknown_version() -> None:
    """Negotiates a protocol version nobody has heard of."""
    child = Child()
    child.version = "1999-12-31"
    child.serve()


def refuses_initialize() -> None:
    """Answers initialize with an error."""

    class Refuses(Child):
        def answer(self, request_id: object, result: Json) -> None:
            send({"id": request_id, "error": {"code": -32000, "message": "no API key configured"}})

    Refuses().serve()


def paginated(size: str = "2", total: str = "5") -> None:
    """Lists TOTAL tools, SIZE a page."""

    class Pages(Child):
        def page(self, cursor: str | None) -> Json:
            start = int((cursor or "page-0").removeprefix("page-"))
            end = min(start + int(size), int(total))
            page: Json = {"tools": [tool(f"tool_{number}") for number in range(start, end)]}
            return {**page, "nextCursor": f"page-{end}"} if end < int(total) else page

    Pages().serve()


def endless_pages() -> None:
    """Answers every tools/list with the same cursor."""

    class Endless(Child):
        def page(self, cursor: str | None) -> Json:
            return {**super().page(cursor), "nextCursor": "again"}

    Endless().serve()


def slow_pages(seconds: str = "0.1") -> None:
    """Lists one tool a page without end, SECONDS each."""

    class Slow(Child):
        def page(self, cursor: str | None) -> Json:
            time.sleep(float(seconds))
            number = int(cursor or 0)
            return {"tools": [tool(f"tool_{number}")], "nextCursor": str(number + 1)}

    Slow().serve()


def list_changed() -> None:
    """After each call sends tools/list_changed, and from then on lists `echo` and `after_N`."""

    class Changes(Child):
        calls = 0

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            super().call(request_id, params, line)
            self.calls += 1
            self.tools = ("echo", f"after_{self.calls}")
            send({"method": "notifications/tools/list_changed"})

        def result(self, method: str, params: Json) -> Json:
            result = super().result(method, params)
            if method == "initialize":
                result["capabilities"]["tools"]["listChanged"] = True
            return result

    Changes().serve()
