#!/usr/bin/env node
// An MCP server without dependencies, as a package on a registry has it. Its tool reports what this process can reach.
import { createInterface } from "node:readline";
import { appendFileSync, readFileSync } from "node:fs";
import { createConnection } from "node:net";
import { fileURLToPath } from "node:url";

const attempt = (action) => { try { action(); return "done"; } catch (error) { return error.code; } };
const connect = (port) => new Promise((resolve) => {
  const socket = createConnection({ host: "127.0.0.1", port });
  socket.on("connect", () => { socket.destroy(); resolve("connected"); });
  socket.on("error", (error) => resolve(error.code));
});

const answers = {
  initialize: () => ({
    protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "tiny", version: "1.0.0" },
  }),
  "tools/list": () => ({ tools: [{ name: "probe", inputSchema: { type: "object" } }] }),
  "tools/call": async ({ arguments: { port, file } }) => ({
    content: [{
      type: "text",
      text: JSON.stringify({
        package: attempt(() => appendFileSync(fileURLToPath(import.meta.url), "// changed\n")),
        workspace: attempt(() => appendFileSync(file, "x")),
        registry: await connect(port),
        secret: process.env.SECRET ?? null,
        installation: JSON.parse(readFileSync(new URL("installed.json", import.meta.url))),
        args: process.argv.slice(2),
      }),
    }],
  }),
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = answers[method] ? { result: await answers[method](params) } : { error: { code: -32601, message: "no" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...result })}\n`);
});
