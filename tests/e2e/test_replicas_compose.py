"""The published docker compose example without docker: what it runs is run here, with its own words and files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from tests.e2e.busmachine import until
from tests.e2e.host import SWITCHBOARD
from tests.e2e.redisserver import RedisServer, free_port, needs_redis
from tests.e2e.web import Web, stop
from tests.e2e.workspaces import REPO

EXAMPLE = REPO / "examples" / "replicas"
TOKEN = "token-of-the-team-0123456789"
COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
GATEWAYS = {name: each for name, each in COMPOSE["services"].items() if "build" in each}


@needs_redis
def test_every_command_variable_and_file_of_the_example_is_one_that_the_programs_take(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis")
    redis.start(*shlex.split(COMPOSE["services"]["redis"]["command"])[1:])
    with ExitStack() as stack:
        stack.callback(redis.kill)
        webs = {}
        for name, service in GATEWAYS.items():
            folder = tmp_path / name
            folder.mkdir()
            for each in service["configs"]:
                file = COMPOSE["configs"][each["source"]]["file"]
                shutil.copy(EXAMPLE / file, folder / PurePosixPath(each["target"]).relative_to("/workspace"))
            words = service["command"].replace("/workspace", str(folder)).replace(":3100", f":{free_port()}")
            env = {
                key: value.replace("redis://redis:6379/0", redis.url)
                for key, value in service["environment"].items()
            }
            assert re.fullmatch(r"\$\{SWITCHBOARD_TOKEN:\?.+\}", env["SWITCHBOARD_TOKEN"])
            env |= {"SWITCHBOARD_TOKEN": TOKEN, "XDG_CACHE_HOME": str(folder / "cache")}
            log = stack.enter_context((folder / "log").open("wb"))
            process = stack.enter_context(
                subprocess.Popen([*SWITCHBOARD, *shlex.split(words)], env={**os.environ, **env}, stderr=log)
            )
            stack.callback(stop, process)
            webs[name] = Web(process, folder, folder / "log")
        for name, web in webs.items():
            web.host, web.token = "127.0.0.1", TOKEN
            until(lambda web=web: web.ask("GET", "/health").json["bus"]["state"] == "connected")  # type: ignore[misc]
            assert web.initialize().key.startswith(name[-1] + ".")
            # As nginx asks, which hands on the name that the client used, or is asked by a neighbour.
            for host in ("localhost:8080", f"{name}:3100"):
                assert web.ask("GET", "/status", None, {"Host": host}).status == 200


def test_the_container_brings_what_the_example_turns_on_and_may_write_where_it_keeps_things() -> None:
    text = (REPO / "Dockerfile").read_text()
    assert "requirements/image.lock" in text
    packages = set(
        re.findall(r"^([a-z0-9-]+)==", (REPO / "requirements" / "image.lock").read_text(), re.MULTILINE)
    )
    assert {"uvicorn", "redis"} <= packages
    made = re.search(r"mkdir -p (\S+) && chown -R switchboard:switchboard /workspace", text)
    assert made is not None
    for service in GATEWAYS.values():
        # A volume has the owner of the folder it covers; without one in the image that would be root.
        assert [volume.partition(":")[2] for volume in service["volumes"]] == [made[1]]
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"])
    ports = {port.rpartition(":")[2] for port in COMPOSE["services"]["nginx"]["ports"]}
    assert ports == set(re.findall(r"listen (\d+);", (EXAMPLE / "nginx.conf").read_text()))
