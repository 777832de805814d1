// Tries to leave a sandbox, as `escape.py` does, with what a server on node would use. Prints one line of JSON.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import dgram from "node:dgram";
import path from "node:path";

const targets = JSON.parse(process.argv[2]);
const outside = (...parts) => path.join(targets.outside, ...parts);
const inside = (...parts) => path.join(targets.workspace, ...parts);
const connect = (options) =>
  new Promise((resolve, reject) => {
    const socket = net.connect(options, () => { socket.destroy(); resolve(); });
    socket.on("error", reject);
  });
const echo = () =>
  new Promise((resolve, reject) => {
    const socket = dgram.createSocket("udp4");
    const timer = setTimeout(() => { socket.close(); reject({ code: "timeout" }); }, 1000);
    const done = (settle) => (value) => { clearTimeout(timer); socket.close(); settle(value); };
    socket.on("message", done(resolve)).on("error", done(reject));
    socket.send("x", targets.udp, "127.0.0.1", (problem) => problem && done(reject)(problem));
  });
const spawn = () => {
  const ran = spawnSync("/bin/true");
  if (ran.error) throw ran.error;
};
const attempts = {
  read_ssh_key: () => fs.readFileSync(outside(".ssh", "id")),
  stat_outside: () => fs.statSync(outside(".ssh", "id")),
  write_outside: () => fs.writeFileSync(outside("new"), "x"),
  chmod_outside: () => fs.chmodSync(outside("file"), 0o600),
  write_inside: () => fs.writeFileSync(inside("new"), "x"),
  write_git_hooks: () => fs.writeFileSync(inside(".git", "hooks", "pre-commit"), "x"),
  write_config: () => fs.writeFileSync(inside("switchboard.config.json"), "x"),
  read_mail_store: () => fs.readFileSync(inside(".switchboard", "message")),
  read_environ_of_others: () => fs.readFileSync(`/proc/${targets.pid}/environ`),
  signal_others: () => process.kill(targets.pid, "SIGCONT"),
  connect_tcp_loopback: () => connect({ host: "127.0.0.1", port: targets.tcp }),
  connect_ipv6_loopback: () => connect({ host: "::1", port: targets.tcp }),
  connect_direct_address: () => connect({ host: targets.address, port: targets.tcp }),
  call_dbus: () => connect({ path: targets.dbus }),
  connect_unix_socket: () => connect({ path: targets.unix }),
  connect_broker_socket: () => connect({ path: ".switchboard/control.sock" }),
  connect_abstract_socket: () => connect({ path: "\0" + targets.abstract }),
  send_udp_loopback: echo,
  spawn_program: spawn,
};
const found = {};
for (const [name, attempt] of Object.entries(attempts)) {
  try {
    await attempt();
    found[name] = "open";
  } catch (problem) {
    found[name] = problem.code ?? String(problem);
  }
}
console.log(JSON.stringify(found));
