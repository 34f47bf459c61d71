// The thread that computes: a worker of the package `sheaf` with the computations that the server's owner gives to tabs.
import * as sheaf from "../../sdk/js/src/index.js";
import type {Order, Report} from "./messages.js";

interface Prepared {
  computations: Record<string, sheaf.Computation>;
  summary?: string;
}

const say = (report: Report): void => postMessage(report);

let worker: sheaf.Worker | null = null;
let sent = 0;
let received = 0;
let isOverLimit = false;
let isReachable = true;
let summary = "";

/** `fetch`, with what it moves counted: bodies, both ways. */
function countedFetch(bytesMax: number): typeof fetch {
  return async (input, init) => {
    if (init?.body instanceof Uint8Array) sent += init.body.byteLength;
    let response: Response;
    try {
      response = await fetch(input, init);
    } catch (error) {
      if (init?.signal?.aborted !== true) isReachable = false;
      throw error;
    }
    isReachable = true;
    received += Number(response.headers.get("content-length") ?? 0);
    if (response.status === 401) say({kind: "ended", problem: "", needsToken: true, isOverLimit});
    if (sent + received > bytesMax && !isOverLimit) {
      isOverLimit = true;
      // What was taken is still handed in.
      worker?.stop();
    }
    return response;
  };
}

function report(): void {
  if (worker === null) return;
  const {leases, verdicts} = worker.counters;
  say({kind: "progress", state: worker.state, accepted: verdicts["ACCEPTED"] ?? 0, leases, sent, received, isReachable, summary});
}

async function start(order: Extract<Order, {kind: "start"}>): Promise<void> {
  const counted = countedFetch(order.bytesMax);
  const {prepare} = await import(order.module) as {prepare: (parts: object) => Prepared | Promise<Prepared>};
  const read = async (): Promise<Uint8Array | null> => {
    if (order.sample === null) return order.bytes === null ? null : new Uint8Array(order.bytes);
    const response = await counted(new URL(order.sample, order.module));
    if (!response.ok) throw new Error(`the server's sample cannot be fetched: ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
  };
  const prepared = await prepare({bytes: await read(), sheaf});
  summary = prepared.summary ?? "";
  const token = order.token === "" ? undefined : order.token;
  // A token goes where the page came from, and that its person trusts already.
  const server = new URL(order.module).origin;
  worker = new sheaf.Worker({
    computations: prepared.computations,
    transport: new sheaf.ConnectTransport({server, token, insecure: true, fetch: counted}),
    onChange: report,
  });
  await worker.run();
  report();
  say({kind: "ended", problem: "", needsToken: false, isOverLimit});
}

onmessage = ({data: order}: MessageEvent<Order>) => {
  if (order.kind === "stop") return void worker?.stop();
  start(order).catch((error: unknown) => {
    say({kind: "ended", problem: error instanceof Error ? error.message : String(error), needsToken: false, isOverLimit: false});
  });
};
