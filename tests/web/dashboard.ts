// Dashboard: a tab on the pages of a server, and whatever goes wrong in it.
//
//   const browser = await launch();
//   const page = await openPage(browser, sheafd.http, "rounds", {width: 375, scheme: "dark"});
//   await page.getByText("succeeded").first().waitFor();
//   await finish(page);   // No console error, no violation of the policy, nothing wider than the screen.
import assert from "node:assert/strict";
import {execFile, spawn} from "node:child_process";
import {existsSync, mkdtempSync, readdirSync, readFileSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {promisify} from "node:util";

import {type Browser, type BrowserContext, chromium, type Page} from "playwright-core";

import {program} from "../sdk/js/sheafd.js";

const CHROMIUM = "/usr/bin/chromium";
export const skip = existsSync(CHROMIUM) ? false : "there is no Chromium; Debian's package chromium brings it";

export const WIDTHS = [375, 1440] as const;
export const SCHEMES = ["light", "dark"] as const;

export function launch(): Promise<Browser> {
  return chromium.launch({executablePath: CHROMIUM, args: ["--no-sandbox"]});
}

interface View {
  width?: number;
  scheme?: "light" | "dark";
  /** For tools of tests that the policy of the pages would not let in. */
  bypassCSP?: boolean;
  /** Into a window that is open. */
  context?: BrowserContext;
  /** What the browser itself says on the console of answers that the test asks for, such as a refusal. */
  expected?: RegExp;
}

const problems = new WeakMap<Page, string[]>();

export async function openPage(browser: Browser, http: string, hash: string, view: View = {}): Promise<Page> {
  const {width = 1440, scheme = "light", bypassCSP = false, expected} = view;
  const context = view.context ?? await browser.newContext({viewport: {width, height: width < 500 ? 812 : 900}, colorScheme: scheme, bypassCSP});
  const page = await context.newPage();
  const found: string[] = [];
  problems.set(page, found);
  page.on("pageerror", (error) => found.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !expected?.test(message.text())) found.push(message.text());
  });
  await page.goto(`http://${http}/${hash.startsWith("/") ? hash.slice(1) : `#/${hash}`}`);
  return page;
}

/** What went wrong in the tab so far. */
export function problemsOf(page: Page): string[] {
  return problems.get(page)!;
}

export async function finish(page: Page): Promise<void> {
  const wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
  assert.ok(Number(wider) <= 0, `${page.url()} is ${wider} px wider than the screen`);
  assert.deepEqual(problemsOf(page), [], page.url());
  await page.context().close();
}

const AXE = readFileSync(join(process.env["SHEAF_SOURCE"]!, "web/node_modules/axe-core/axe.min.js"), "utf8");

/** What axe-core finds that a person with a keyboard or a screen reader would stumble over. */
export async function axe(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const {violations} = await page.evaluate("axe.run(document, {resultTypes: ['violations']})") as
    {violations: {id: string; help: string; nodes: {html: string; failureSummary: string}[]}[]};
  return violations.map(({id, help, nodes}) => `${id}: ${help}: ${nodes[0]!.html} ${nodes[0]!.failureSummary}`);
}

/** Texts of which a part is not seen, and which cannot be read in a title either. */
export async function cutTexts(page: Page): Promise<string[]> {
  return await page.evaluate(`[...document.querySelectorAll("#app *")]
    .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0 && getComputedStyle(element).overflowX === "hidden")
    .filter((element) => element.closest("[title]") === null && element.querySelector("[title]") === null)
    .map((element) => element.textContent)`) as string[];
}

const run = promisify(execFile);

/** What `sheaf` prints as JSON. */
export async function sheaf(address: string, args: string[], options: string[] = []): Promise<any> {
  const {stdout} = await run(program("sheaf"), [...args, "--server", address, "-o", "json", ...options]);
  return JSON.parse(stdout);
}

/** A program's call, as a program makes it. */
export async function call(http: string, method: string, request: unknown, token = ""): Promise<any> {
  const answer = await fetch(`http://${http}/sheaf.v1.${method}`, {
    method: "POST", headers: {"content-type": "application/json", ...(token && {authorization: `Bearer ${token}`})}, body: JSON.stringify(request),
  });
  const body = await answer.json();
  assert.equal(answer.status, 200, `${method}: ${JSON.stringify(body)}`);
  return body;
}

let numRequests = 0;
export const requestId = (): string => `web-test-${++numRequests}`;

/** Creates a round that sums one number; its id. */
export async function createRound(http: string, spec: Record<string, unknown>, token = ""): Promise<string> {
  const {round} = await call(http, "RoundService/CreateRound", {
    requestId: requestId(), spec: {
      computation: {name: "noop"}, aggregate: {outputs: [{name: "x", operator: "sum", dtype: "FLOAT32"}]}, listed: {tasks: [{}]}, ...spec,
    },
  }, token);
  return round.id;
}

/**
 * The data directory of a server on which `sheaf demo tags` trained: rounds as people have them. With the sample of packages, or, of
 * so many clients, with those of this machine.
 */
export async function trainedStore(folder: string, rounds: number, real?: {clients: number}): Promise<string> {
  const sample = join(process.env["SHEAF_SOURCE"]!, "tests/data/debian-index-sample.snapshot");
  const child = spawn(program("sheaf"), ["demo", "tags", "--rounds", String(rounds), "--workers", "4", "--clients", String(real?.clients ?? 30), "--keep",
    ...(real === undefined ? ["--data", sample] : [])], {stdio: ["ignore", "ignore", "inherit"], env: {...process.env, TMPDIR: folder}});
  const code = await new Promise((resolve) => child.once("exit", resolve));
  assert.equal(code, 0, "sheaf demo tags");
  const kept = readdirSync(folder).find((name) => name.startsWith("sheaf-demo-"));
  assert.ok(kept, `the demo's store is in ${folder}`);
  return join(folder, kept, "server");
}

export function temporaryFolder(): {path: string; remove: () => void} {
  const path = mkdtempSync(join(tmpdir(), "sheaf-web-"));
  return {path, remove: () => rmSync(path, {recursive: true, force: true})};
}
