// Worker: a worker in a page, a Web Worker or Node. It calls the server for tasks, computes here, and hands results in.
//
//   const worker = new Worker({
//     server: "https://sheaf.example:7443",
//     computations: {mean_age: async (task) => new Update({age: mean(ages)}, {weight: ages.length})},
//   });
//   await worker.run();
//
// It holds nothing that it cannot lose. A tab that is closed, frozen or cut off loses its leases, and nothing else: their tasks
// go to other workers when the leases end, and a result that arrives twice counts once. It keeps broadcasts in memory, up to a
// limit, and nothing in the browser's storage.
import {ConnectTransport, type Token} from "../connect_transport.js";
import {SheafError} from "../errors.js";
import {consoleLog, type Log} from "../log.js";
import {ownOrigin} from "../own_origin.js";
import {type Random, SystemRandom} from "../random.js";
import type {Transport} from "../transport.js";
import {SOFTWARE_VERSION} from "../version.js";
import {BlobCache} from "./blob_cache.js";
import {type Clock, SystemClock} from "./clock.js";
import {type Computation, ComputationRunner} from "./computation_runner.js";
import {type WorkerCounters, WorkerLoop, type WorkerOptions, type WorkerState} from "./worker_loop.js";

// A timer that is so late: the machine slept, or the tab was frozen. Connections may be gone without anybody having said so.
const SLEPT_MS = 5_000;
// How often to look whether that is so, also while a call is parked.
const LOOK_MS = 10_000;

export interface WorkerConfig extends Partial<WorkerOptions> {
  /** "https://HOST:PORT" or "http://HOST:PORT". In a page: its own origin if left out. */
  server?: string;
  /** What this worker runs, by name. */
  computations: Readonly<Record<string, Computation>>;
  /** What computations find as `task.data` and `task.datasets`. */
  data?: Readonly<Record<string, unknown>>;
  /** The token that proves who this worker is, or a function that gives the one that is valid now. */
  token?: Token;
  /** Send the token even where others on the network can read it. */
  insecure?: boolean;
  /** What a computation throws may quote data: it goes into the log, and to the server only if this is true. */
  shareErrors?: boolean;
  /** Broadcasts that are kept in memory. */
  cacheBytesMax?: number;
  log?: Log;
  /** Called after each step, when something may have changed: `state`, `counters`. */
  onChange?: (worker: Worker) => void;
  /** For tests: another network, time and chance. */
  transport?: Transport;
  clock?: Clock;
  random?: Random;
}

/** A worker. `run` once. */
export class Worker {
  private readonly loop: WorkerLoop;
  private readonly transport: Transport;
  private readonly clock: Clock;
  private readonly onChange: (worker: Worker) => void;
  private stopTimer: () => void = () => {};
  private isWoken = false;
  private isStopping = false;
  private end: ((error: SheafError | null) => void) | null = null;
  // When the timer was to call.
  private due = Infinity;

  constructor(config: WorkerConfig) {
    const {server, computations, data, token, insecure, shareErrors, cacheBytesMax = 64 << 20, log = consoleLog,
           onChange = () => {}, transport, clock = new SystemClock(), random = new SystemRandom(), ...options} = config;
    this.clock = clock;
    this.onChange = onChange;
    this.transport = transport ?? new ConnectTransport({server: server ?? ownOrigin(), token, insecure});
    this.loop = new WorkerLoop({
      worker: `js-${random.token(10)}`, softwareVersion: SOFTWARE_VERSION, prepareAhead: 1, broadcastBytesMax: 1 << 30,
      contributionBytesMax: 256 << 20, ...options,
    }, {
      transport: this.transport,
      runner: new ComputationRunner(computations, log, {datasets: data, shareErrors}),
      cache: new BlobCache(cacheBytesMax),
      random,
      log,
      wake: () => this.wake(),
    });
  }

  /**
   * Works until `stop` has been called and what was held is handed in or given back. Throws FAILED_PRECONDITION if the server
   * refuses this worker's protocol version.
   */
  run(): Promise<void> {
    if (this.end !== null) return Promise.reject(new SheafError("FAILED_PRECONDITION", "this worker runs already"));
    const stopListening = this.listen();
    return new Promise<void>((resolve, reject) => {
      this.end = (error) => {
        stopListening();
        if (error === null) resolve();
        else reject(error);
      };
      this.step();
    });
  }

  /** Takes nothing new, finishes what runs within the grace time or gives it back, and hands in the last results. */
  stop(): void {
    // It may be called whenever something changed.
    if (this.isStopping) return;
    this.isStopping = true;
    this.loop.requestDrain();
  }

  /** What was waited out may be over: there is a new token, or a connection again. */
  retryNow(): void {
    this.loop.endPause();
  }

  get state(): WorkerState {
    return this.loop.state;
  }

  get counters(): Readonly<WorkerCounters> {
    return this.loop.counters;
  }

  // One step for all that happens in one moment.
  private wake(): void {
    if (this.isWoken || this.end === null) return;
    this.isWoken = true;
    queueMicrotask(() => {
      if (this.isWoken) this.step();
    });
  }

  private step(): void {
    this.isWoken = false;
    this.stopTimer();
    const now = this.clock.now();
    if (now > this.due + SLEPT_MS) this.onSlept();
    this.due = Math.min(this.loop.step(now), now + LOOK_MS);
    // Whatever the listener throws, the worker goes on.
    if (!this.loop.isDone) this.stopTimer = this.clock.after(this.due - now, () => this.step());
    try {
      this.onChange(this);
    } finally {
      if (this.loop.isDone) {
        const end = this.end;
        this.end = () => {};
        end?.(this.loop.exitError);
      }
    }
  }

  private onSlept(): void {
    if (this.transport instanceof ConnectTransport) this.transport.reset("this machine or tab slept");
    this.loop.endPause();
  }

  // Both are told to pages, and `online` to Web Workers, too; Node has neither.
  private listen(): () => void {
    if (typeof globalThis.addEventListener !== "function") return () => {};
    const onOnline = () => this.retryNow();
    // A timer of a hidden page comes late.
    const onVisible = () => this.step();
    const page = typeof document === "undefined" ? null : document;
    globalThis.addEventListener("online", onOnline);
    page?.addEventListener("visibilitychange", onVisible);
    page?.addEventListener("resume", onVisible);
    return () => {
      globalThis.removeEventListener("online", onOnline);
      page?.removeEventListener("visibilitychange", onVisible);
      page?.removeEventListener("resume", onVisible);
    };
  }
}
