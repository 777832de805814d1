"""Connections: whom we trust, and through whom we go."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from switchboard_mcp.transport.http import proxies
from switchboard_mcp.transport.http.streamable_http import StreamableHttpTransport
from tests.cases import each_case
from tests.unit.transport.http.remotes import dialled
from tests.unit.transport.http.webserver import Reply, Request, serving

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class TestProxies:
    @each_case(
        ("environment", "scheme", "host", "proxy"),
        [
            ({}, "https", "example.com", ""),
            ({"https_proxy": "http://p:1"}, "https", "example.com", "http://p:1"),
            ({"https_proxy": "http://p:1"}, "http", "example.com", ""),
            ({"all_proxy": "p:1"}, "http", "example.com", "http://p:1"),
            ({"http_proxy": "http://p:1", "no_proxy": "example.com"}, "http", "example.com", ""),
            ({"http_proxy": "http://p:1"}, "http", "127.0.0.1", ""),
            ({"http_proxy": "http://p:1"}, "http", "localhost", ""),
            ({"http_proxy": "http://p:1"}, "http", "::1", ""),
        ],
    )
    def test_the_environment_names_them(
        self,
        environment: dict[str, str],
        scheme: str,
        host: str,
        proxy: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert proxies.proxy_for(scheme, host) == proxy

    async def test_a_request_goes_through_the_proxy_with_its_password(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, request.path)

        async with serving(handle) as proxy:
            monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
            async with dialled(StreamableHttpTransport, "http://server.invalid/mcp") as rig:
                rig.ask("tools/list")
                await rig.until_received(1)
        assert b'"result": "http://server.invalid/mcp"' in rig.received[0]
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")

    @each_case("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
    async def test_a_proxy_that_does_not_work_is_reported(
        self, proxy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", proxy)
        async with dialled(StreamableHttpTransport, "http://server.invalid/mcp") as rig:
            rig.ask("tools/list")
            assert (await rig.until_over()).code == "child_unreachable"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for this machine that nobody has signed but itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return file


class TestTrust:
    @pytest.fixture(autouse=True)
    def read_anew(self) -> Iterator[None]:
        proxies.tls.cache_clear()
        yield
        proxies.tls.cache_clear()

    @staticmethod
    def secured(certificate: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        return context

    async def test_a_certificate_that_nobody_vouches_for_is_refused(self, certificate: Path) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x")

        async with serving(handle, tls=self.secured(certificate)) as web:
            async with dialled(StreamableHttpTransport, web.url) as rig:
                rig.ask("tools/list")
                problem = await rig.until_over()
            assert web.requests == []
        assert problem.code == "child_unreachable"
        assert "its certificate is not trusted" in problem.message

    async def test_one_that_the_user_trusts_is_not(
        self, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x")

        async with (
            serving(handle, tls=self.secured(certificate)) as web,
            dialled(StreamableHttpTransport, web.url) as rig,
        ):
            for id in range(3):
                rig.ask("tools/list", id)
            await rig.until_received(3)
