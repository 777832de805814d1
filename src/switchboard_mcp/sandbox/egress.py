"""Lets a child with a network of its own reach the listed hosts, from Switchboard's event loop.

The child's namespace has no way out. Its listeners and its name server were created inside it and handed out: a name
that is allowed resolves to a made-up address, a connection to that address arrives here, and is made outside by name
if the rules allow it. TLS passes through untouched. Names that resolve to addresses of private networks are refused,
unless a rule names the address or its network; those of this machine, public ones too, unless a rule names the address.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache

from switchboard_mcp.config.sandbox import ANY_HOST, HostRule

IP_PKTINFO, IPV6_PKTINFO = 8, 50
TYPE_A, TYPE_AAAA = 1, 28
# 198.18.0.0/15 and 2001:2::/48 are reserved for measurements, so no host has an address in them.
FIRST_ADDRESSES = {
    TYPE_A: ipaddress.ip_address("198.18.0.1"),
    TYPE_AAAA: ipaddress.ip_address("2001:2::1"),
}
LOCALHOST = "localhost"
# Addresses of IPv6 that gateways turn into addresses of IPv4, which are in the last 32 bits.
TRANSLATED = tuple(ipaddress.IPv6Network(one) for one in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96"))
MAX_NAMES = 65_536
MAX_NAME_CHARS = 253
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
# A name has 253 characters; queries with options are longer than 512 bytes only with padding.
MAX_QUERY = 1232
CONNECT_TIMEOUT_S = 20.0
# A child that opens connections in a loop must not take our descriptors.
MAX_CONNECTIONS = 256
# Each takes a thread of ours while it waits for a name server; others need those threads too.
MAX_LOOKUPS = 2
COPY_BYTES = 65_536
DNS_TTL_S = 30
NO_SUCH_NAME = 3
# Without descriptors for a new connection, the next attempt to accept one waits.
ACCEPT_PAUSE_S = 1.0

OnDenied = Callable[[str, int], None]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def find_rule(rules: Iterable[HostRule], host: str, port: int) -> HostRule | None:
    """Return the rule that allows a name or address on a port, or None. Port 0 stands for any."""
    for rule in rules:
        if (not port or port in rule.ports) and _matches(rule.host, host):
            return rule
    return None


def _matches(pattern: str, host: str) -> bool:
    if pattern == host:
        return True
    address = parse_address(host)
    if address is not None:
        network = _network(pattern)
        return network is not None and address in network
    if not is_host_name(host):
        return False
    if pattern == ANY_HOST:
        return host != LOCALHOST
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and host != pattern[2:]


def is_host_name(text: str) -> bool:
    r"""Return True for a name that the C library looks up as it is.

    It ends a name at a zero byte, and some versions end an address at a space: `evil.org\0.example.com` is `evil.org`.
    """
    return len(text) <= MAX_NAME_CHARS and _HOST_NAME.fullmatch(text) is not None


def parse_address(text: str) -> Address | None:
    """Return an address, one of IPv4 if it is written as one of IPv6; or None if the text is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _network(pattern: str) -> Network | None:
    try:
        return ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return None


def is_public(text: str, rules: Iterable[HostRule], port: int) -> bool:
    """Return True if a connection to this address is allowed: a public one, or one that a rule names.

    An address of this machine has to be named itself: a network or a name that includes it is not enough.
    """
    address = parse_address(text)
    if address is None:
        return False
    meanings = list(_meanings(address))
    is_own = any(map(is_of_this_machine, meanings))
    if not is_own and all(one.is_global and not one.is_multicast for one in meanings):
        return True
    return any(
        port in rule.ports
        and (network := _network(rule.host)) is not None
        and address in network
        and (not is_own or network.num_addresses == 1)
        for rule in rules
    )


def is_of_this_machine(address: Address) -> bool:
    """Return True if an address belongs to an interface of this machine: a socket can be bound to no other."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as problem:
        # Others say that the address is incomplete, as that of a link is: its interface is here.
        return problem.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return not _binds_anything(family)


@cache
def _binds_anything(family: socket.AddressFamily) -> bool:
    """Return True if this system lets a socket have addresses of other machines (`ip_nonlocal_bind`)."""
    nobody = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"  # for documentation, of no machine
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((nobody, 0))
    except OSError:
        return False
    return True


def _meanings(address: Address) -> Iterator[Address]:
    """Yield an address, and the address of IPv4 that it leads to."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield address.teredo[1]
        if any(address in network for network in TRANSLATED):
            yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)


class NameTable:
    """Assigns made-up addresses to names: one of IPv4 and one of IPv6 to each."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str, kind: int = TYPE_A) -> str | None:
        """Return the address of a name, or None if there are too many."""
        if name not in self._numbers:
            if len(self._numbers) >= MAX_NAMES:
                return None
            self._numbers[name] = len(self._numbers)
        address = str(FIRST_ADDRESSES[kind] + self._numbers[name])
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


def answer_query(query: bytes, end: int, kind: int, address: str | None, *, exists: bool) -> bytes:
    """Return the answer to a query: an address, no address for a name that exists, or that there is no such name."""
    code = 0 if exists else NO_SUCH_NAME
    flags = bytes((0x80 | (query[2] & 1), 0x80 | code))
    header = query[:2] + flags + struct.pack(">HHHH", 1, int(address is not None), 0, 0)
    answer = b""
    if address is not None:
        packed = ipaddress.ip_address(address).packed
        answer = b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, DNS_TTL_S, len(packed)) + packed
    return header + query[12:end] + answer


class Egress:
    """The connections of one child to the outside. `on_denied` gets the host and port of each that is refused."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rules: Sequence[HostRule],
        names: Sequence[socket.socket],
        listeners: Sequence[socket.socket],
        on_denied: OnDenied,
    ) -> None:
        self._loop = loop
        self._rules = rules
        self._sockets = [*names, *listeners]
        self._on_denied = on_denied
        self._table = NameTable()
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self._tasks: set[asyncio.Task[None]] = set()
        self.hosts: dict[str, int] = {}  # connections by host and port
        for one in names:
            one.setblocking(False)
            loop.add_reader(one.fileno(), self._answer, one)
        for listener in listeners:
            listener.setblocking(False)
            loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Close everything. The child has ended."""
        for one in self._sockets:
            if one.fileno() >= 0:
                self._loop.remove_reader(one.fileno())
                one.close()
        for task in self._tasks:
            task.cancel()

    def _answer(self, names: socket.socket) -> None:
        """Answer one query, from the address that it was sent to: others are ignored by resolvers."""
        try:
            query, controls, _flags, sender = names.recvmsg(MAX_QUERY, 64)
        except OSError:
            return
        question = parse_query(query)
        if question is None:
            return
        name, kind, end = question
        exists = find_rule(self._rules, name, 0) is not None
        address = self._table.address_of(name, kind) if exists and kind in FIRST_ADDRESSES else None
        if not exists and kind in FIRST_ADDRESSES:
            self._on_denied(name, 0)
        with suppress(OSError):
            names.sendmsg(
                [answer_query(query, end, kind, address, exists=exists)], _from_same(controls), 0, sender
            )

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _peer = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no more descriptors: it stays readable, so the loop would only turn
            self._loop.remove_reader(listener.fileno())
            self._loop.call_later(ACCEPT_PAUSE_S, self._listen_again, listener)
            return
        if len(self._tasks) >= MAX_CONNECTIONS:
            connection.close()
            return
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(False)
            local, port = connection.getsockname()[:2]
            address = parse_address(local)
            is_loopback = address is not None and address.is_loopback
            host = self._table.name_of(str(address)) or (LOCALHOST if is_loopback else str(address))
            if find_rule(self._rules, host, port) is None:
                self._on_denied(host, port)
                _reset(connection)
                return
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    outside = await self._connect(host, port)
            except (OSError, UnicodeError):  # also a timeout; the child sees it break, as from a broken host
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
        if host == LOCALHOST:
            found = ["127.0.0.1", "::1"]
        elif parse_address(host) is not None:
            found = [host] if is_public(host, self._rules, port) else []
        else:
            async with self._lookups:
                infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = [str(info[4][0]) for info in infos]
            found = [address for address in found if is_public(address, self._rules, port)]
        problem: OSError | None = None
        for address in found:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                outside = socket.socket(family, socket.SOCK_STREAM)
            except OSError as reason:  # this machine has no IPv6
                problem = reason
                continue
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


def _from_same(controls: Iterable[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return the control message that sends an answer from the address that its query was sent to."""
    for level, number, data in controls:
        if (level, number) == (socket.IPPROTO_IP, IP_PKTINFO):
            return [(level, number, struct.pack("=I4s4s", 0, data[8:12], bytes(4)))]
        if (level, number) == (socket.IPPROTO_IPV6, IPV6_PKTINFO):
            return [(level, number, data[:16] + bytes(4))]
    return []


def _reset(connection: socket.socket) -> None:
    """Close a connection with a reset, so the child sees a refusal and no end of a response."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
