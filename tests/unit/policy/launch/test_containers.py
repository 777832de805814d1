"""Containers as children: an image by its digest, and nothing that hands it the machine."""

from __future__ import annotations

import pytest

from switchboard_mcp.policy.launch.containers import image_flaw

IMAGE = "ghcr.io/example/server@sha256:" + "a" * 64


@pytest.mark.parametrize(
    "flags",
    [
        "-i --rm -e TOKEN --env=MODE=x=y -v data:/data -v /srv/files:/files:ro",
        "--mount type=bind,source=/home/ada/work,target=/work --network none --security-opt no-new-privileges",
        "--mount=type=volume,src=cache,dst=/cache --net=bridge",
    ],
)
def test_what_a_container_may_have(flags: str) -> None:
    assert image_flaw(["run", *flags.split(), IMAGE, "--flag", "/etc"]) == ""


@pytest.mark.parametrize(
    "flags",
    [
        "-v /:/host",
        "-v //:/host",
        "-v /./:/host:ro",
        "--volume=/:/host",
        "-v /etc/../:/host",
        "-v /var/run/docker.sock:/var/run/docker.sock",
        "-v /root/.ssh:/keys",
        "--mount type=bind,source=/,target=/host",
        '--mount "type=bind","src=/etc",target=/x',
        "--mount=type=bind,src=/dev,dst=/dev",
        "--network host",
        "--net=host",
        "--network name=host,alias=x",
        "-v ../../../..:/host",
        "--mount type=bind,source=./../..,target=/host",
        "--mount type=bind,source=/srv/files,src=/,target=/host",
        "--mount type=bind,Source=/,target=/host",
        "-v /var/run:/run",
        "-v /run:/run",
        "-v /var:/x",
        "-v /usr:/x",
        "--security-opt seccomp=unconfined",
        "--security-opt=label=disable",
        "--privileged",
        "--pid=host",
        "-v/:/host",
        "-iv /:/host",
    ],
)
def test_what_hands_it_the_machine_is_refused(flags: str) -> None:
    assert image_flaw(["run", *flags.split(), IMAGE])
