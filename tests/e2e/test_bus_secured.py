"""A Redis that asks who is there: TLS with certificates on both sides, an ACL user, a password that nobody sees."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from switchboard_mcp.bus.redis_client import RIGHTS, BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings, BusTls
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log
from tests.e2e.busmachine import Machine, until
from tests.e2e.redisserver import RedisServer, free_port, needs_redis
from tests.e2e.workspaces import REPO
from tests.patience import PATIENCE_S

pytestmark = needs_redis
# Signs that have to be written otherwise in an address.
SECRET = "p/w#of?the@bus"
ENCODED = "p%2Fw%23of%3Fthe%40bus"


class Authority:
    """Signs certificates for this machine; each file holds a certificate with its key."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = self._write(name, self._name, self._key, is_authority=True)

    def sign(self, name: str) -> str:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        return self._write(name, subject, ec.generate_private_key(ec.SECP256R1()), is_authority=False)

    def _write(
        self, name: str, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool
    ) -> str:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(here, False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
            .sign(self._key, hashes.SHA256())
        )
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file = self._folder / f"{name}.pem"
        file.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, form, serialization.NoEncryption()))
        return str(file)


class Safe(RedisServer):
    """Redis with TLS besides, which wants a certificate of its own authority."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "redis")
        authority, other = Authority(folder, "authority"), Authority(folder, "other")
        server = authority.sign("server")
        self.own = {"caFile": authority.file, "certFile": authority.sign("client")}
        self.other = other.file
        port = free_port()
        self.url = f"rediss://127.0.0.1:{port}/0"
        self.start(
            *("--tls-port", str(port), "--tls-ca-cert-file", authority.file),
            *("--tls-cert-file", server, "--tls-key-file", server),
        )


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    server = Safe(tmp_path_factory.mktemp("safe"))
    yield server
    server.kill()


def test_events_are_published_over_tls_with_certificates_named_from_the_workspace(
    safe: Safe, tmp_path: Path
) -> None:
    tls = {key: "../" + Path(file).name for key, file in safe.own.items()}
    for file in safe.own.values():
        (tmp_path / Path(file).name).symlink_to(file)
    near = Machine(tmp_path / "near", safe.url, bus={"tls": tls})
    near.run("mail", "agents", "add", "ada")
    with near.relay():
        near.run("mail", "send", "ada", "sealed", "--as", "ada")
        until(lambda: near.ask("bus", "status")["events"]["published"] > 0)
        assert near.run("bus", "status").returncode == 0


async def refusal(url: str, **tls: str) -> tuple[str, str]:
    """The code and the words with which the first question fails."""
    try:
        wire = BusClient(BusSettings(url=url, tls=BusTls(**tls)))
        try:
            await wire.stream_length("dead")
        finally:
            await wire.close()
    except SwitchboardError as refused:
        return refused.failure.code, str(refused)
    raise AssertionError("it was answered")


async def test_whatever_is_wrong_with_tls_is_told_by_the_setting_it_is_in(
    safe: Safe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, own = safe.own["caFile"], safe.own["certFile"]
    (tmp_path / "empty.pem").touch()
    nowhere, empty = str(tmp_path / "nowhere.pem"), str(tmp_path / "empty.pem")
    for tls, code, said in (
        ({"ca_file": safe.other, "cert_file": own}, "bus_unreachable", "bus.tls.caFile"),
        ({"cert_file": own}, "bus_unreachable", "bus.tls.caFile"),
        ({"ca_file": ca}, "bus_unreachable", "bus.tls.certFile"),
        ({"ca_file": ca, "cert_file": safe.other}, "bus_unreachable", "bus.tls.certFile"),
        ({"ca_file": nowhere}, "config_invalid", f"bus.tls.caFile cannot be used: {nowhere}: No such file"),
        ({"ca_file": empty}, "config_invalid", f"bus.tls.caFile cannot be used: {empty}"),
        ({"ca_file": ca, "cert_file": empty}, "config_invalid", "bus.tls.certFile"),
        ({"ca_file": ca, "cert_file": own, "key_file": safe.other}, "config_invalid", "keyFile"),
        ({"ca_file": ca, "key_file": own}, "config_invalid", "bus.tls.certFile is not"),
    ):
        told = await refusal(safe.url, **tls)
        assert told[0] == code, (tls, told)
        assert said in told[1], (tls, told)
    elsewhere = safe.url.replace("127.0.0.1", "localhost")
    assert "does not match the host in bus.url" in (await refusal(elsewhere, ca_file=ca, cert_file=own))[1]
    monkeypatch.setattr("switchboard_mcp.bus.redis_client.CONNECT_TIMEOUT_S", 0.1)
    no_tls = f"rediss://127.0.0.1:{safe.port}/0"
    assert "may not speak TLS" in (await refusal(no_tls, ca_file=ca, cert_file=own))[1]


async def test_authorities_of_the_system_are_not_trusted_where_one_is_named(
    safe: Safe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", safe.own["caFile"])
    wire = BusClient(BusSettings(url=safe.url, tls=BusTls(cert_file=safe.own["certFile"])))
    assert await wire.stream_length("dead") == 0
    await wire.close()
    told = await refusal(safe.url, ca_file=safe.other, cert_file=safe.own["certFile"])
    assert "bus.tls.caFile" in told[1]


def test_a_relay_that_does_not_trust_its_redis_is_away_and_doctor_names_the_setting(
    safe: Safe, tmp_path: Path
) -> None:
    tls = {**safe.own, "caFile": safe.other}
    machine = Machine(tmp_path / "one", safe.url, bus={"tls": tls})
    with machine.relay():
        until(lambda: machine.status() is not None)
        assert machine.ask("status")["bus"]["state"] == "away"
        assert "bus.tls.caFile" in machine.run("doctor").stdout
    lost = Machine(tmp_path / "two", safe.url, bus={"tls": {"caFile": "nowhere.pem"}})
    assert str(lost.folder / "nowhere.pem") in lost.run("doctor").stdout


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    grant(server, *RIGHTS.split())
    server.url = f"redis://bus:{ENCODED}@127.0.0.1:{server.port}/0"
    yield server
    server.kill()


def grant(server: RedisServer, *rights: str) -> None:
    said = server.ask("ACL", "SETUSER", "bus", "reset", "on", f">{SECRET}", "~{switchboard}:*", *rights)
    assert said == "+OK", said


def test_a_user_with_the_rights_that_the_docs_name_can_do_everything_and_nothing_dangerous(
    guarded: RedisServer, tmp_path: Path
) -> None:
    assert f"~{{PREFIX}}:*` with `{RIGHTS}`" in (REPO / "docs" / "bus.md").read_text()
    assert guarded.ask("ACL", "DRYRUN", "bus", "FLUSHALL") != "+OK"
    near = Machine(tmp_path / "near", guarded.url)
    near.run("mail", "agents", "add", "ada")
    with near.relay():
        near.run("mail", "send", "ada", "hello", "--as", "ada")
        message = near.ask("mail", "claim", "--as", "ada")["messages"][0]["message"]
        near.run("mail", "ack", message["id"], "done", "--as", "ada")
        until(lambda: {event["outcome"] for event in near.events()} == {"delivered", "done"})
        assert near.run("bus", "tail").returncode == 0
        assert near.run("bus", "status").returncode == 0
        assert "rejected the command" not in near.said


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("+@read", "GET"),
        ("+@write", "SET"),
        ("+@scripting", "'evalsha'"),
        ("+@connection", "'client|setname'"),
    ],
)
async def test_a_right_that_is_missing_shows_as_refused_with_the_command_it_is_for(
    guarded: RedisServer, tmp_path: Path, missing: str, command: str
) -> None:
    rights = [right for right in RIGHTS.split() if right != missing]
    grant(guarded, *rights, *([] if missing.startswith("+") else [f"-{missing}"]))
    async with await MessageStore.open(str(tmp_path)) as post, asyncio.TaskGroup() as tasks:
        await post.register("ada")
        await post.send(Draft(action="status_update", payload=""), sender="ada", recipient="ada")
        relay = BusRelay(post.path, BusClient(BusSettings(url=guarded.url)), Log(level="error"), store=post)
        running = tasks.create_task(relay.run())
        async with asyncio.timeout(PATIENCE_S):
            while relay.status().state != "refused":  # noqa: ASYNC110 - its status is a file
                await asyncio.sleep(0.02)
        assert command in relay.status().problem
        running.cancel()


EVENT = b'{"v":1,"id":"a","kind":"call","who":"between you and me"}'


async def test_what_redis_refuses_to_take_is_not_told_with_the_words_of_an_event(
    guarded: RedisServer,
) -> None:
    for prepare, code in (
        (lambda: grant(guarded, *RIGHTS.split(), "-xadd"), "bus_refused"),
        (lambda: grant(guarded, *RIGHTS.split(), "resetkeys"), "bus_refused"),
        (lambda: guarded.ask("CONFIG", "SET", "maxmemory", "1mb"), "bus_full"),
    ):
        grant(guarded, *RIGHTS.split())
        prepare()
        wire = BusClient(BusSettings(url=guarded.url))
        with pytest.raises(SwitchboardError, match="Redis at") as refused:
            await wire.publish("events", [EVENT], 10)
        assert refused.value.failure.code == code
        assert "between" not in str(refused.value)
        await wire.close()


def test_the_password_is_nowhere_but_in_the_environment(guarded: RedisServer, tmp_path: Path) -> None:
    right = Machine(tmp_path / "right", guarded.url)
    wrong = Machine(tmp_path / "wrong", guarded.url.replace(ENCODED, ENCODED + "x"))
    # As one writes it who does not know that it must be written otherwise.
    raw = Machine(tmp_path / "raw", guarded.url.replace(ENCODED, SECRET))
    with right.relay(), wrong.relay():
        until(lambda: right.status() is not None and wrong.status() is not None)
        for machine in (right, wrong, raw):
            machine.run("bus", "status")
            machine.run("doctor", "--json")
        assert right.ask("status")["bus"]["state"] == "connected"
        assert wrong.ask("status")["bus"]["state"] == "refused"
    assert raw.run("bus", "relay").returncode == 2
    assert "not a valid Redis URL" in raw.said
    assert "%2F" in raw.said
    files = b"".join(file.read_bytes() for file in tmp_path.glob("*/.switchboard/**/*") if file.is_file())
    told = right.said + wrong.said + raw.said + files.decode("utf-8", "replace")
    for secret in (SECRET, ENCODED, "w#of?the", "of?the", "the@bus"):
        assert secret not in told
