"""Containers as children: an image by its digest, and nothing that hands it the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard_mcp.policy.launch.containers import image_flaw

IMAGE = "ghcr.io/example/server@sha256:" + "a" * 64


@pytest.mark.parametrize(
    "flags",
    [
        "-i --rm -e TOKEN --env=MODE=x=y -v data:/data -v /srv/files:/files:ro",
        "--mount type=bind,source=/home/ada/work,target=/work --network none --security-opt no-new-privileges",
        "--mount=type=volume,src=cache,dst=/cache --net=bridge",
        "--mount type=tmpfs,dst=/tmp,tmpfs-size=64m --tmpfs /run:rw,noexec,size=64m --network my-net_1.x",
        "-u 1000:1000 -w /work -m 512m --cpus 1.5 --pids-limit 100 --cap-drop ALL --name x --hostname y --pull never",
        "--label a.b=c --platform linux/amd64 --add-host db:10.0.0.1 --dns 1.1.1.1 --ulimit nofile=10:20 --init -t",
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
        "--mount type=volume,volume-driver=local,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/,dst=/host",
        "--mount type=volume,src=x,dst=/x,volume-opt=device=/",
        "--mount type=bind,src=/srv,dst=/x,bind-propagation=shared",
        "--mount type=npipe,src=x,dst=/x",
        "--mount type=image,src=x,dst=/x",
        "--network container:other",
        "--network=container:other",
        "--net ns:/proc/1/ns/net",
        "--network pasta:-T,22",
        "--network slirp4netns:allow_host_loopback=true",
        "--network name=x,driver-opt=y",
        "-v data:/x:shared",
        "-v /srv/x:/x:O",
        "-v a:b:c:d",
        "--volumes-from other",
        "--volume-driver x",
        "--security-opt no-new-privileges=false",
        "--security-opt apparmor=x",
        "--security-opt seccomp=/srv/profile.json",
        "--entrypoint sh",
        "--runtime x",
        "--gpus all",
        "--env-file /srv/x",
        "--hostname a,b",
        "--user 0:0:0",
        "--cap-add ALL",
        "--cgroup-parent x",
        "--sysctl kernel.x=1",
        "--group-add docker",
        "--rootfs",
        "--ipc=host",
        "--uts host",
        "--userns=host",
        "--pid container:x",
        "--init-path /x",
        "--hooks-dir /x",
        "--module x",
        "--decryption-key x",
        "--secret x",
        "--tmpfs /x:exec,dev",
        "--add-host x",
        "--log-driver x",
        "--publish 80:80",
        "-p 22:22",
        "--link x",
        "--detach",
        "-d",
        "-iv /:/host",
    ],
)
def test_what_hands_it_the_machine_is_refused(flags: str) -> None:
    assert image_flaw(["run", *flags.split(), IMAGE])


@pytest.mark.parametrize("option", ["-v {}:/x", "--mount type=bind,source={},target=/x"])
def test_a_link_to_a_system_path_is_not_mounted(tmp_path: Path, option: str) -> None:
    link = tmp_path / "data"
    link.mkdir()
    assert image_flaw(["run", *option.format(link).split(), IMAGE]) == ""
    link.rmdir()
    link.symlink_to("/")
    assert "a system path" in image_flaw(["run", *option.format(link).split(), IMAGE])
