"""Host rules: names, addresses and ports; and connections of real processes through them."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import sys
import time
from typing import Any

import pytest

from switchboard_mcp.config.sandbox import HostRule
from switchboard_mcp.sandbox import egress
from switchboard_mcp.sandbox.egress import NameTable, answer_query, find_rule, is_public, parse_query
from tests.cases import each_case
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, words_of

WEB = (80, 443)
BUBBLEWRAP = pytest.param(
    "bubblewrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
)


class TestRules:
    @each_case(
        ("host", "name", "port", "allowed"),
        [
            ("example.com", "example.com", 443, True),
            ("example.com", "example.com", 22, False),
            ("example.com", "a.example.com", 443, False),
            ("*.example.com", "a.example.com", 443, True),
            ("*.example.com", "a.b.example.com", 443, True),
            ("*.example.com", "example.com", 443, False),
            ("*.example.com", "badexample.com", 443, False),
            ("*", "anything.org", 443, True),
            ("*", "203.0.113.7", 443, False),
            ("203.0.113.7", "203.0.113.7", 443, True),
            ("203.0.113.0/24", "203.0.113.7", 443, True),
            ("203.0.113.0/24", "203.0.114.7", 443, False),
            ("localhost", "localhost", 443, True),
            ("localhost", "127.0.0.1", 443, False),
            ("*", "localhost", 443, False),
            ("2001:db8::7", "2001:db8::7", 443, True),
            ("2001:db8::/32", "2001:db8::7", 443, True),
            ("2001:db8::/32", "2001:db9::7", 443, False),
            ("0.0.0.0/0", "2001:db8::7", 443, False),
            ("*", "2001:db8::7", 443, False),
            # The C library takes the name up to the zero byte, and in some versions up to the space.
            ("*.example.com", "evil.org\0.example.com", 443, False),
            ("*.example.com", "203.0.113.7 .example.com", 443, False),
            ("*", "evil.org\0", 443, False),
            ("*.example.com", "a..example.com", 443, False),
            ("*.example.com", ".example.com", 443, False),
            ("*.example.com", "\ufffd.example.com", 443, False),
            ("*.example.com", f"{'a' * 64}.example.com", 443, False),
            ("*.example.com", f"{'a.' * 125}example.com", 443, False),
            ("*.example.com", "_srv-1.xn--bcher-kva.example.com", 443, True),
        ],
    )
    def test_a_rule_matches_names_and_addresses(self, host: str, name: str, port: int, allowed: bool) -> None:
        assert (find_rule([HostRule(host, WEB)], name, port) is not None) == allowed

    @each_case(
        "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "::1", "fe80::1", "fd00::1",
                    "224.0.0.1", "100.64.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::", "::7f00:1",
                    "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1", "ff02::1",
                    "64:ff9b:1::7f00:1", "fe80::1%lo"]
    )  # fmt: skip
    def test_a_name_may_not_lead_to_this_machine_or_a_private_network(self, address: str) -> None:
        assert not is_public(address, [HostRule("*", WEB)], 443)

    def test_unless_a_rule_names_the_network(self) -> None:
        rules = [HostRule("db.internal", (5432,)), HostRule("10.0.0.0/8", (5432,))]
        assert is_public("10.1.2.3", rules, 5432)
        assert not is_public("10.1.2.3", rules, 443)
        assert is_public("93.184.216.34", rules, 443)
        assert is_public("2606:2800:220::1", rules, 443)
        assert is_public("::ffff:10.1.2.3", rules, 5432)
        assert is_public("fd00::1", [HostRule("fd00::/8", WEB)], 443)


def test_no_address_of_this_machine_is_reached_unless_a_rule_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        here = probe.getsockname()[0]
    for address, is_own in {
        here: True,
        "127.0.0.2": True,
        "::1": True,
        "0.0.0.0": True,
        "192.0.2.1": False,
    }.items():
        parsed = egress.parse_address(address)
        assert parsed is not None
        assert egress.is_of_this_machine(parsed) is is_own, address
    public = ("93.184.216.34", "2606:2800:220::1", "64:ff9b::5db8:d822")
    monkeypatch.setattr(egress, "is_of_this_machine", lambda address: str(address) in public)
    for address, rule, allowed in (
        (public[0], "*", False),
        (public[0], "93.184.216.0/24", False),
        (public[0], "93.184.216.34", True),
        (public[1], "*.example.com", False),
        (public[1], "2606:2800::/32", False),
        (public[1], "2606:2800:220::1", True),
        (public[2], "*", False),
        ("93.184.216.35", "*", True),
    ):
        assert is_public(address, [HostRule(rule, WEB)], 443) is allowed, (address, rule)


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01" + bytes(6) + labels + b"\0" + struct.pack(">HH", kind, 1)


class TestNames:
    def test_an_allowed_name_has_an_address_and_others_do_not_exist(self) -> None:
        asked = query("Api.Example.com")
        parsed = parse_query(asked)
        assert parsed is not None
        name, kind, end = parsed
        assert (name, kind) == ("api.example.com", 1)
        answer = answer_query(asked, end, 1, "198.18.0.1", exists=True)
        assert answer[:2] == asked[:2]
        assert answer[3] & 15 == 0
        assert answer.endswith(socket.inet_aton("198.18.0.1"))
        assert answer_query(asked, end, 1, None, exists=False)[3] & 15 == 3
        assert answer_query(asked, end, 1, None, exists=True)[6:8] == b"\0\0"
        address = "2001:2::1"
        answer = answer_query(asked, end, 28, address, exists=True)
        assert answer.endswith(b"\0\x10" + socket.inet_pton(socket.AF_INET6, address))

    @each_case("data", [b"", b"x" * 11, b"\0" * 40, query("a")[:-3], b"\xff" * 600, query("a" * 63)[:40]])
    def test_a_packet_that_is_no_query_is_ignored(self, data: bytes) -> None:
        assert parse_query(data) is None

    def test_each_name_gets_one_address_and_there_is_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(egress, "MAX_NAMES", 2)
        table = NameTable()
        first = table.address_of("a")
        assert first == table.address_of("a")
        six = table.address_of("a", 28) or ""
        assert ":" in six
        assert table.name_of(first or "") == table.name_of(six) == "a"
        assert table.address_of("b") not in (None, first)
        assert table.address_of("c") is None


CLIENT = """
import json, socket, sys
found = {}
wanted, families = json.loads(sys.argv[1])
for host, port in wanted:
    try:
        info = socket.getaddrinfo(host, port, families.get(host, 0), socket.SOCK_STREAM)[0]
        with socket.socket(info[0], info[1]) as sock:
            sock.settimeout(10)
            sock.connect(info[4])
            found[f"{host}:{port}"] = sock.recv(1).decode() or "closed"
    except OSError as problem:
        found[f"{host}:{port}"] = type(problem).__name__
print(json.dumps(found))
"""
FLOOD = """
import socket, sys
opened = []
for number in range(20):
    opened.append(socket.socket())
    opened[-1].connect((socket.gethostbyname(f"{number}.example.com"), int(sys.argv[1])))
for one in opened:
    try:
        one.recv(1)
    except OSError:
        pass
print("ended")
"""
SMUGGLER = """
import json, socket, struct, sys
port, names = int(sys.argv[1]), json.loads(sys.argv[2])
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
found = []
for labels in names:
    question = b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(10)
        asking.sendto(b"\\x12\\x34\\x01\\0\\0\\x01" + bytes(6) + question, (server, 53))
        answer = asking.recv(1232)
    if answer[3] & 15:
        found.append("no such name")
        continue
    with socket.socket() as sock:
        sock.settimeout(10)
        try:
            sock.connect((socket.inet_ntoa(answer[-4:]), port))
            found.append(sock.recv(1).decode() or "closed")
        except OSError as problem:
            found.append(type(problem).__name__)
print(json.dumps(found))
"""
NODE_CLIENT = """
import net from "node:net";
const found = {};
for (const [host, port] of JSON.parse(process.argv[2])) {
  found[`${host}:${port}`] = await new Promise((resolve) => {
    const socket = net.connect({ host, port });
    socket.on("data", (data) => { resolve(String(data)); socket.destroy(); });
    socket.on("error", (problem) => resolve(problem.code)).on("end", () => resolve("closed"));
  });
}
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux")
class TestConnections:
    @pytest.mark.parametrize("mechanism", ["linux", BUBBLEWRAP])
    async def test_listed_hosts_are_reached_and_others_are_not(
        self, sandboxed: Sandboxed, targets: dict[str, Any], monkeypatch: pytest.MonkeyPatch, mechanism: str
    ) -> None:
        port, address = targets["tcp"], targets["address"]
        real = socket.getaddrinfo

        def resolve(host: str, *more: Any, **options: Any) -> Any:
            made_up = {
                "api.example.com": address,
                "evil.example.com": "127.0.0.1",
                "six.example.org": address,
            }
            return real(made_up.get(host, host), *more, **options)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        hosts = [f"localhost:{port}", f"*.example.com:{port}", f"{address}/32:{port}"]
        hosts += [f"six.example.org:{port}", f"[2001:db8::/32]:{port}"]
        words = words_of("workspace", network="hosts", hosts=hosts, mechanism=mechanism)
        wanted = [
            ("localhost", port), ("api.example.com", port), ("evil.example.com", port), ("example.org", port),
            (address, port), ("192.0.2.9", port), ("localhost", 1), ("six.example.org", port), ("::1", port),
            ("2001:db9::9", port), (f"::ffff:{address}", port), ("::ffff:192.0.2.9", port), ("2130706433", port),
            ("0x7f.1", port), ("2001:db8::9", port),
        ]  # fmt: skip
        # Names are asked for as IPv6 once: the answer must lead to the same host.
        families = {"six.example.org": socket.AF_INET6}
        found = json.loads(
            await sandboxed.run(words, OWN_PYTHON, "-c", CLIENT, json.dumps([wanted, families]))
        )
        reached = {host for host, result in found.items() if result == "x"}
        assert reached == {
            f"{host}:{port}"
            for host in (
                "localhost", "api.example.com", address, "six.example.org", "::1", f"::ffff:{address}", "2130706433",
                "0x7f.1",
            )
        }  # fmt: skip
        denied = {denial.target for denial in sandboxed.denials}
        assert denied == {"evil.example.com", "example.org", "192.0.2.9", "2001:db9::9"}

    async def test_no_byte_in_a_name_leads_to_a_host_that_is_not_listed(
        self, sandboxed: Sandboxed, targets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port, address = targets["tcp"], targets["address"]
        monkeypatch.setattr(egress, "is_public", lambda *_: True)  # as if it were an address of the internet
        words = words_of("workspace", network="hosts", hosts=[f"*.example.com:{port}"])
        names = [[f"{address}{byte}", "example", "com"] for byte in ("\0", " ", "\t", "\n", "%", "#", "/")]
        found = json.loads(
            await sandboxed.run(words, OWN_PYTHON, "-c", SMUGGLER, str(port), json.dumps(names))
        )
        assert found == ["no such name"] * len(names)

    async def test_any_host_is_not_this_machine(self, sandboxed: Sandboxed, targets: dict[str, Any]) -> None:
        port = targets["tcp"]
        words = words_of("workspace", network="hosts", hosts=[f"*:{port}"])
        names = [
            "localhost",
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "127.1",
            "0x7f000001",
            "::ffff:127.0.0.1",
            "a.localhost",
        ]
        wanted = [(name, port) for name in names] + [(targets["address"], port)]
        found = json.loads(await sandboxed.run(words, OWN_PYTHON, "-c", CLIENT, json.dumps([wanted, {}])))
        assert {host for host, result in found.items() if result == "x"} == set()

    async def test_a_child_that_asks_for_many_names_leaves_threads_for_others(
        self, sandboxed: Sandboxed, targets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running: list[str] = []
        most = 0

        def resolve(host: str, *_more: Any, **_options: Any) -> Any:
            nonlocal most
            running.append(host)
            most = max(most, len(running))
            time.sleep(0.01)
            running.remove(host)
            raise OSError("no such name")

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        words = words_of("workspace", network="hosts", hosts=[f"*.example.com:{targets['tcp']}"])
        await sandboxed.run(words, OWN_PYTHON, "-c", FLOOD, str(targets["tcp"]))
        assert 0 < most <= egress.MAX_LOOKUPS

    @pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
    async def test_a_program_on_node_is_treated_alike(
        self, sandboxed: Sandboxed, targets: dict[str, Any]
    ) -> None:
        port = targets["tcp"]
        script = sandboxed.workspace / "client.mjs"
        script.write_text(NODE_CLIENT)
        words = words_of("workspace", network="hosts", hosts=[f"localhost:{port}"])
        wanted = json.dumps([("127.0.0.1", port), ("example.org", port)])
        found = json.loads(await sandboxed.run(words, "node", str(script), wanted))
        assert found[f"127.0.0.1:{port}"] == "x"
        assert found[f"example.org:{port}"] in ("ENOTFOUND", "EAI_AGAIN")
