// A host made with the TypeScript SDK's client: connects over stdio, lists, calls, and prints what it saw as JSON.
//
//   node host.mjs '{"sdk": "client" | "sdk", "mode": "legacy" | "auto", "command": […], "cwd": "…", "calls": […]}'
//
// A call is {name, arguments}; with "untilProgress": true it is cancelled at its first progress.
// `sdk` names the package: "client" is version 2, "sdk" version 1. The packages are installed in tests/npm.
import { createRequire } from "node:module";

const plan = JSON.parse(process.argv[2]);
const require = createRequire(new URL("../../npm/package.json", import.meta.url));

function load() {
  if (plan.sdk === "client") {
    const { Client } = require("@modelcontextprotocol/client");
    const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");
    return { Client, StdioClientTransport, log: "notifications/message" };
  }
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
  const { LoggingMessageNotificationSchema } = require("@modelcontextprotocol/sdk/types.js");
  return { Client, StdioClientTransport, log: LoggingMessageNotificationSchema };
}

const { Client, StdioClientTransport, log } = load();
const options = plan.sdk === "client" ? { versionNegotiation: { mode: plan.mode } } : {};
const client = new Client({ name: "typescript-host", version: "1" }, options);
const [command, ...args] = plan.command;
const seen = { results: [], progress: [], logs: [], errors: [] };
client.setNotificationHandler(log, ({ params }) => void seen.logs.push(params));
client.onerror = (error) => seen.errors.push(String(error));

await client.connect(new StdioClientTransport({ command, args, cwd: plan.cwd, env: process.env, stderr: "ignore" }));
seen.server = client.getServerVersion();
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools;
for (const { untilProgress, ...call } of plan.calls) {
  const given = new AbortController();
  const onprogress = (progress) => {
    seen.progress.push(progress);
    // What is reported beneath 1 is the wait for the child's start.
    if (untilProgress && progress.progress >= 1) given.abort("seen enough");
  };
  const options = { onprogress, signal: given.signal };
  const asking = plan.sdk === "client" ? [call, options] : [call, undefined, options];
  try {
    seen.results.push(await client.callTool(...asking));
  } catch (error) {
    seen.results.push({ code: error.code, message: error.message });
  }
}
await client.close();
console.log(JSON.stringify(seen));
