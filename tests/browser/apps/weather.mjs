// A server whose page has the URI of the published example's. Its page calls a tool of its own.
import { registerAppResource, registerAppTool, RESOURCE_MIME_TYPE } from "@modelcontextprotocol/ext-apps/server";
import { McpServer } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const resourceUri = "ui://get-time/mcp-app.html";
const page = `<!DOCTYPE html><button id="ask">Ask</button><p id="weather">?</p><script type="module">
let sent = 0;
const waiting = new Map();
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const request = (method, params) => new Promise((resolve) => { waiting.set(++sent, resolve); send({ id: sent, method, params }); });
addEventListener("message", ({ data }) => waiting.get(data.id)?.(data));
document.getElementById("ask").onclick = async () => {
  const { result, error } = await request("tools/call", { name: "ask-weather", arguments: {} });
  document.getElementById("weather").textContent = error ? error.message : result.content[0].text;
};
await request("ui/initialize", { protocolVersion: "2026-01-26", appInfo: { name: "weather", version: "1" }, appCapabilities: {} });
send({ method: "ui/notifications/initialized" });
</script>`;

const server = new McpServer({ name: "weather", version: "1" });
const answer = (text) => async () => ({ content: [{ type: "text", text }] });
registerAppTool(server, "get-weather", { description: "The weather", inputSchema: z.object({}), _meta: { ui: { resourceUri } } }, answer("shown"));
registerAppTool(server, "ask-weather", { description: "For the page", inputSchema: z.object({}), _meta: { ui: { visibility: ["app"] } } }, answer("rain"));
registerAppResource(server, resourceUri, resourceUri, { mimeType: RESOURCE_MIME_TYPE }, async () => ({
  contents: [{ uri: resourceUri, mimeType: RESOURCE_MIME_TYPE, text: page }],
}));
await server.connect(new StdioServerTransport());
