// Drives a Chromium for the tests: each line on stdin is a piece of JavaScript to run with `page`, `context` and
// `browser` at hand; each line on stdout is what it returned, or why not.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [profile, executablePath] = process.argv.slice(2);
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args, viewport: { width: 1280, height: 860 } });
const page = context.pages()[0] || (await context.newPage());
context.setDefaultTimeout(Number(process.env.BROWSER_PATIENCE_MS || 180000));
const heard = [];
for (const event of ["pageerror", "console"]) page.on(event, (what) => { if (event === "pageerror" || what.type() === "error") heard.push(String(event === "pageerror" ? what : what.text())); });
page.on("dialog", (dialog) => { heard.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
const AsyncFunction = (async () => {}).constructor;
process.stdout.write('"ready"\n');
for await (const line of createInterface({ input: process.stdin })) {
  const { code, args: given } = JSON.parse(line);
  let told;
  try {
    told = { value: await new AsyncFunction("page", "context", "heard", "args", code)(page, context, heard, given) };
  } catch (problem) {
    told = { problem: String(problem && problem.stack) };
  }
  process.stdout.write(JSON.stringify(told) + "\n");
}
await context.close();
