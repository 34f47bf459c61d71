// Tabs of a real browser as workers: closed, frozen, reloaded and offline in the middle of a round. Nothing is lost, and nothing
// counts twice.
import assert from "node:assert/strict";
import {spawn} from "node:child_process";
import {existsSync, readFileSync, writeFileSync} from "node:fs";
import {createServer, request, type Server as HttpServer} from "node:http";
import type {AddressInfo} from "node:net";
import {join} from "node:path";
import test, {after, before} from "node:test";
import {pathToFileURL} from "node:url";

import {type Browser, chromium, type Page} from "playwright-core";

import {type ComputationFunction, connect, type Server, silent, sum, type Tensor, Worker} from "../../../sdk/js/src/index.js";
import {madeUpPackages} from "./made_up_packages.js";
import {program, Sheafd, sleep, until} from "./sheafd.js";

const CHROMIUM = "/usr/bin/chromium";
const skip = existsSync(CHROMIUM) ? false : "there is no Chromium; Debian's package chromium brings it";

// Each in a Web Worker, as the documentation says.
const IN_A_TAB = `
  import {Worker} from "/sheaf.js";
  const query = new URL(location.href).searchParams;
  const [name, server] = [query.get("name"), query.get("server") ?? undefined];
  const one_hot = async (task) => {
    await new Promise((resolve) => setTimeout(resolve, 15));
    const counters = new BigInt64Array(Number(task.outputs[0].shape[0]));
    counters[Number(task.payload)] = 1n;
    return {counters};
  };
  const worker = new Worker({server, computations: {one_hot}, worker: name, onChange: () => postMessage(worker.counters)});
  await worker.run();
`;
const PAGE = `<!doctype html><title>A worker</title><script type="module">
  new Worker("/worker.js" + location.search, {type: "module"}).onmessage = ({data}) => { window.counters = data; };
</script>`;

// By path: what it is, and its text.
const served: Record<string, [string, string]> = {
  "/": ["text/html", PAGE], "/worker.js": ["text/javascript", IN_A_TAB],
  "/sheaf.js": ["text/javascript", readFileSync(join(process.env["SHEAF_SOURCE"]!, "sdk/js/dist/sheaf.js"), "utf8")],
};

let sheafd: Sheafd;
let server: Server;
let site: HttpServer;
let address: string;
let browser: Browser;

before(async () => {
  if (skip !== false) return;
  // The page, the package, and all calls from one origin, as behind a proxy.
  site = createServer((incoming, answer) => {
    const file = served[incoming.url!.split("?")[0]!];
    if (file !== undefined) return void answer.writeHead(200, {"content-type": file[0]}).end(file[1]);
    const [hostname, port] = sheafd.http.split(":");
    const call = request({hostname, port, path: incoming.url, method: incoming.method, headers: incoming.headers}, (from) => {
      answer.writeHead(from.statusCode!, from.headers);
      from.pipe(answer);
    });
    call.on("error", () => answer.destroy());
    answer.on("close", () => call.destroy());
    incoming.pipe(call);
  });
  await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  sheafd = await Sheafd.start("--http-origins", address);
  server = connect(sheafd.http);
  browser = await chromium.launch({executablePath: CHROMIUM, args: ["--no-sandbox"]});
});

after(async () => {
  if (skip !== false) return;
  await browser.close();
  site.closeAllConnections();
  site.close();
  await sheafd.close();
});

/** A tab of its own window; what its console says is an error of the test. */
async function tab(name: string, problems: string[]): Promise<Page> {
  const page = await (await browser.newContext()).newPage();
  page.on("pageerror", (error) => problems.push(`${name}: ${error}`));
  await page.goto(`${address}/?name=${name}`);
  return page;
}

const ACCEPTED = "(window.counters?.verdicts?.ACCEPTED ?? 0)";

async function accepted(page: Page, count: number): Promise<void> {
  await page.waitForFunction(`${ACCEPTED} >= ${count}`, undefined, {timeout: 60_000});
}

function tasksOf(count: number): {payload: number}[] {
  return Array.from({length: count}, (_, i) => ({payload: i % 4}));
}

const outputs = {counters: sum([4], {dtype: "int64"})};

test("A tab that is closed, frozen, reloaded or offline loses its lease, and nothing else", {skip}, async () => {
  const problems: string[] = [];
  const names = ["closed", "frozen", "reloaded", "offline"];
  const [closed, frozen, reloaded, offline] = await Promise.all(names.map((name) => tab(name, problems))) as
    [Page, Page, Page, Page];
  const round = await server.create("one_hot", {outputs, tasks: tasksOf(1200), leaseDuration: 3});
  await Promise.all([closed, frozen, reloaded, offline].map((page) => accepted(page, 5)));
  await closed.close();
  const lifecycle = await frozen.context().newCDPSession(frozen);
  await lifecycle.send("Page.setWebLifecycleState", {state: "frozen"});
  await offline.context().setOffline(true);
  await reloaded.reload();
  await accepted(reloaded, 5);
  await sleep(4_000);
  await offline.context().setOffline(false);
  await lifecycle.send("Page.setWebLifecycleState", {state: "active"});
  const result = await round.result({timeout: 90});
  assert.deepEqual((result.get("counters") as Tensor).data, BigInt64Array.of(300n, 300n, 300n, 300n));
  // Those that are back work again.
  const before = await Promise.all([frozen, offline].map((page) => page.evaluate(ACCEPTED) as Promise<number>));
  const again = await server.create("one_hot", {outputs, tasks: tasksOf(300)});
  await Promise.all([frozen, offline].map((page, i) => accepted(page, before[i]! + 1)));
  assert.deepEqual(((await again.result({timeout: 60})).get("counters") as Tensor).data, BigInt64Array.of(75n, 75n, 75n, 75n));
  assert.deepEqual(problems, []);
  for (const page of [frozen, reloaded, offline]) await page.context().close();
});

test("A page calls a server of another origin, if that server names the page's", {skip}, async () => {
  const problems: string[] = [];
  // Chromium says on the console which call a server did not let it make.
  const other = await Sheafd.start("--store", "memory");
  after(() => other.close());
  const named = await tab(`named&server=http://${sheafd.http}`, problems);
  const stranger = await tab(`stranger&server=http://${other.http}`, problems);
  const result = await server.run("one_hot", {outputs, tasks: tasksOf(40)}, {timeout: 60});
  assert.deepEqual((result.get("counters") as Tensor).data, BigInt64Array.of(10n, 10n, 10n, 10n));
  await accepted(named, 40);
  const refused = await connect(other.http).create("one_hot", {outputs, tasks: tasksOf(1)});
  await assert.rejects(refused.wait({timeout: 1}), {code: "DEADLINE_EXCEEDED"});
  assert.equal(refused.tasks.leased + refused.numContributions, 0);
  assert.deepEqual(problems, []);
  for (const page of [named, stranger]) await page.context().close();
});

test("Tabs, Node and daemons in C++ share a round", {skip}, async () => {
  const problems: string[] = [];
  const tabs = await Promise.all(["one", "two", "three", "four"].map((name) => tab(name, problems)));
  for (let i = 0; i < 4; ++i) {
    sheafd.helper(program("sheaf-worker"), ["--server", sheafd.address, "--log-level", "error"]);
  }
  const one_hot: ComputationFunction = (task) => {
    const counters = new BigInt64Array(4);
    counters[Number(task.payload)] = 1n;
    return {counters};
  };
  const node = new Worker({server: sheafd.http, computations: {one_hot}, log: silent});
  const running = node.run();
  const result = await server.run("one_hot", {outputs, tasks: tasksOf(4000)}, {timeout: 90});
  assert.deepEqual((result.get("counters") as Tensor).data, BigInt64Array.of(1000n, 1000n, 1000n, 1000n));
  await Promise.all(tabs.map((page) => accepted(page, 1)));
  await until("Node works, too", () => (node.counters.verdicts["ACCEPTED"] ?? 0) > 0);
  node.stop();
  await running;
  assert.deepEqual(problems, []);
});

const EXAMPLE = join(process.env["SHEAF_SOURCE"]!, "sdk/js/examples/tab");

/** What a script of the example prints: all of it, or its first line if it goes on. */
function printed(path: string, args: readonly string[], stops = true): Promise<string> {
  const child = spawn(process.execPath, [path, ...args], {
    env: {...process.env, SHEAF_SERVER: `http://${sheafd.http}`}, stdio: ["ignore", "pipe", "inherit"],
  });
  after(() => void child.kill());
  let text = "";
  return new Promise((resolve, reject) => {
    child.stdout.on("data", (piece) => {
      text += piece;
      if (!stops && text.includes("\n")) resolve(text.trim());
    });
    child.on("close", (code) => (code === 0 ? resolve(text.trim()) : reject(new Error(`${path} ended with ${code}: ${text}`))));
  });
}

test("The guide's page: two people choose files, and a program has their mean", {skip}, async () => {
  const at = await printed(join(EXAMPLE, "serve.js"), [EXAMPLE, `http://${sheafd.http}`], false);
  const problems: string[] = [];
  const sent: Buffer[] = [];
  const pages = await Promise.all(["1 2 3", "10 20 30 40"].map(async (text, i) => {
    const file = join(sheafd.directory, `numbers-${i}.txt`);
    writeFileSync(file, text);
    const page = await (await browser.newContext()).newPage();
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
    page.context().on("request", (each) => {
      const body = each.postDataBuffer();
      if (body !== null) sent.push(body);
    });
    await page.goto(at);
    await page.setInputFiles("#file", file);
    return page;
  }));
  assert.equal(await printed(join(EXAMPLE, "program.js"), ["2"]), `mean ${106 / 7} of 2 clients`);
  for (const page of pages) {
    await page.waitForFunction('document.getElementById("status").textContent.includes("1 tasks done")');
    await page.click("#stop");
    await page.waitForFunction('document.getElementById("status").textContent.startsWith("done")');
  }
  // The file stays in the tab: no call has its text.
  assert.ok(sent.length > 0);
  assert.ok(sent.every((body) => !body.includes("1 2 3") && !body.includes("10 20 30 40")));
  assert.deepEqual(problems, []);
});

// As examples/tags/worker.js, in a tab. Of the ways in which TensorFlow.js computes, one that every machine has.
const TRAINS_IN_A_TAB = `
  import * as tf from "@tensorflow/tfjs";
  import {Worker} from "sheaf";
  import {trainTags} from "./computation.js";
  import {NUM_TAGS} from "./model.js";
  import {readPackages} from "./packages.js";

  await tf.setBackend("cpu");
  const data = readPackages(await (await fetch("/packages.txt")).text(), NUM_TAGS);
  const worker = new Worker({computations: {tags: trainTags(data)}, onChange: () => postMessage(worker.counters)});
  await worker.run();
`;

test("Tabs train a Keras model, and its weights are a program's in Node", {skip}, async () => {
  const source = process.env["SHEAF_SOURCE"]!;
  const {build} = await import(pathToFileURL(join(source, "sdk/js/node_modules/esbuild/lib/main.js")).href);
  const bundled = await build({
    stdin: {contents: TRAINS_IN_A_TAB, resolveDir: join(source, "sdk/js/examples/tags")}, bundle: true, format: "esm",
    platform: "browser", target: "es2022", write: false, logLevel: "error",
  });
  served["/worker.js"] = ["text/javascript", bundled.outputFiles[0].text];
  served["/packages.txt"] = ["text/plain", madeUpPackages()];
  const data = join(sheafd.directory, "packages.txt");
  writeFileSync(data, madeUpPackages());
  const problems: string[] = [];
  const tabs = await Promise.all(["left", "right"].map((name) => tab(name, problems)));
  const text = await printed(join(source, "sdk/js/examples/tags/program.js"), [data, "2"]);
  const losses = [...text.matchAll(/loss ([\d.]+)/g)].map(([, loss]) => Number(loss));
  assert.equal(losses.length, 2, text);
  assert.ok(losses[1]! < losses[0]!, text);
  await Promise.all(tabs.map((page) => accepted(page, 1)));
  assert.deepEqual(problems, []);
});
