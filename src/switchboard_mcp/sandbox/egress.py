"""Lets a child with a network of its own reach the listed hosts, from Switchboard's event loop.

The child's namespace has no way out. Its listeners and its name server were created inside it and handed out: a name
that is allowed resolves to a made-up address, a connection to that address arrives here, and is made outside by name
if the rules allow it. TLS passes through untouched. Names that resolve to addresses of this machine or of private
networks are refused, unless a rule names the address or its network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from switchboard_mcp.config.sandbox import ANY_HOST, HostRule

IP_PKTINFO = 8
# 198.18.0.0/15 is reserved for measurements, so no host has an address in it.
FIRST_ADDRESS = int(ipaddress.IPv4Address("198.18.0.1"))
MAX_NAMES = 65_536
# A name has 253 characters; queries with options are longer than 512 bytes only with padding.
MAX_QUERY = 1232
CONNECT_TIMEOUT_S = 20.0
# A child that opens connections in a loop must not take our descriptors.
MAX_CONNECTIONS = 256
COPY_BYTES = 65_536
DNS_TTL_S = 30
TYPE_A = 1
NO_SUCH_NAME = 3

OnDenied = Callable[[str, int], None]


def find_rule(rules: Iterable[HostRule], host: str, port: int) -> HostRule | None:
    """Return the rule that allows a name or address on a port, or None. Port 0 stands for any."""
    for rule in rules:
        if (not port or port in rule.ports) and _matches(rule.host, host):
            return rule
    return None


def _matches(pattern: str, host: str) -> bool:
    if pattern == host:
        return True
    if _is_address(host):
        network = _network(pattern)
        return network is not None and ipaddress.IPv4Address(host) in network
    return pattern == ANY_HOST or (
        pattern.startswith("*.") and host.endswith(pattern[1:]) and host != pattern[2:]
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _network(pattern: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(pattern, strict=False)
    except ValueError:
        return None


def is_public(address: str, rules: Iterable[HostRule], port: int) -> bool:
    """Return True if a name may resolve to this address: a public one, or one that a rule names."""
    parsed = ipaddress.ip_address(address)
    if parsed.is_global and not parsed.is_multicast:
        return True
    return parsed.version == 4 and any(
        port in rule.ports and (network := _network(rule.host)) is not None and parsed in network
        for rule in rules
    )


class NameTable:
    """Assigns made-up addresses to names, each once."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str | None:
        """Return the address of a name, or None if there are too many."""
        address = self._addresses.get(name)
        if address is None and len(self._addresses) < MAX_NAMES:
            address = str(ipaddress.IPv4Address(FIRST_ADDRESS + len(self._addresses)))
            self._addresses[name] = address
            self._names[address] = name
        return address

    def name_of(self, address: str) -> str | None:
        """Return the name that an address was made up for, or None."""
        return self._names.get(address)


def parse_query(query: bytes) -> tuple[str, int, int] | None:
    """Return the name, the type and the end of the only question of a query, or None if it has another form."""
    if len(query) < 17 or query[2] & 0xF8 or query[4:6] != b"\0\1":
        return None
    labels: list[str] = []
    at = 12
    while at < len(query) and query[at]:
        size = query[at]
        if size > 63 or at + 1 + size >= len(query):
            return None
        labels.append(query[at + 1 : at + 1 + size].decode("ascii", "replace").lower())
        at += 1 + size
    if at + 5 > len(query):
        return None
    kind, group = struct.unpack_from(">HH", query, at + 1)
    return (".".join(labels), kind, at + 5) if group == 1 else None


def answer_query(query: bytes, end: int, address: str | None, *, exists: bool) -> bytes:
    """Return the answer to a query: an address, no address for a name that exists, or that there is no such name."""
    code = 0 if exists else NO_SUCH_NAME
    flags = bytes((0x80 | (query[2] & 1), 0x80 | code))
    header = query[:2] + flags + struct.pack(">HHHH", 1, int(address is not None), 0, 0)
    answer = b""
    if address is not None:
        answer = b"\xc0\x0c" + struct.pack(">HHIH", TYPE_A, 1, DNS_TTL_S, 4) + socket.inet_aton(address)
    return header + query[12:end] + answer


class Egress:
    """The connections of one child to the outside. `on_denied` gets the host and port of each that is refused."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rules: Sequence[HostRule],
        names: socket.socket,
        listeners: Sequence[socket.socket],
        on_denied: OnDenied,
    ) -> None:
        self._loop = loop
        self._rules = rules
        self._names = names
        self._listeners = list(listeners)
        self._on_denied = on_denied
        self._table = NameTable()
        self._tasks: set[asyncio.Task[None]] = set()
        self.hosts: dict[str, int] = {}  # connections by host and port
        names.setblocking(False)
        loop.add_reader(names.fileno(), self._answer)
        for listener in self._listeners:
            listener.setblocking(False)
            loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Close everything. The child has ended."""
        for one in (self._names, *self._listeners):
            if one.fileno() >= 0:
                self._loop.remove_reader(one.fileno())
                one.close()
        for task in self._tasks:
            task.cancel()

    def _answer(self) -> None:
        """Answer one query, from the address that it was sent to: others are ignored by resolvers."""
        try:
            query, controls, _flags, sender = self._names.recvmsg(MAX_QUERY, 64)
        except OSError:
            return
        question = parse_query(query)
        if question is None:
            return
        name, kind, end = question
        exists = find_rule(self._rules, name, 0) is not None
        address = self._table.address_of(name) if exists and kind == TYPE_A else None
        if not exists and kind == TYPE_A:
            self._on_denied(name, 0)
        local = next((data[8:12] for _, number, data in controls if number == IP_PKTINFO), bytes(4))
        info = struct.pack("=I4s4s", 0, local, bytes(4))
        with suppress(OSError):
            self._names.sendmsg(
                [answer_query(query, end, address, exists=exists)],
                [(socket.IPPROTO_IP, IP_PKTINFO, info)],
                0,
                sender,
            )

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _peer = listener.accept()
        except OSError:
            return
        if len(self._tasks) >= MAX_CONNECTIONS:
            connection.close()
            return
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(False)
            address, port = connection.getsockname()[:2]
            host = self._table.name_of(address) or ("localhost" if address.startswith("127.") else address)
            if find_rule(self._rules, host, port) is None:
                self._on_denied(host, port)
                _reset(connection)
                return
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    outside = await self._connect(host, port)
            except OSError:  # also a timeout; the child sees the connection break, as from a broken host
                _reset(connection)
                return
            if outside is None:
                self._on_denied(host, port)
                _reset(connection)
                return
            with outside:
                self.hosts[f"{host}:{port}"] = self.hosts.get(f"{host}:{port}", 0) + 1
                await self._copy_both(connection, outside)

    async def _connect(self, host: str, port: int) -> socket.socket | None:
        """Connect to a host by name, outside. None if it has no address that is allowed."""
        if host == "localhost":
            found = ["127.0.0.1"]
        elif _is_address(host):
            found = [host]
        else:
            infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = [str(info[4][0]) for info in infos]
            found = [address for address in found if is_public(address, self._rules, port)]
        problem: OSError | None = None
        for address in found:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            outside = socket.socket(family, socket.SOCK_STREAM)
            outside.setblocking(False)
            try:
                await self._loop.sock_connect(outside, (address, port))
            except OSError as reason:
                outside.close()
                problem = reason
            except BaseException:
                outside.close()
                raise
            else:
                return outside
        if problem is not None:
            raise problem
        return None

    async def _copy_both(self, one: socket.socket, other: socket.socket) -> None:
        await asyncio.gather(self._copy(one, other), self._copy(other, one))

    async def _copy(self, source: socket.socket, target: socket.socket) -> None:
        """Copy until the source ends or either side fails, then pass the end on."""
        with suppress(OSError):
            while data := await self._loop.sock_recv(source, COPY_BYTES):
                await self._loop.sock_sendall(target, data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _reset(connection: socket.socket) -> None:
    """Close a connection with a reset, so the child sees a refusal and no end of a response."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
