// WorkerLoop: a worker, as a machine that takes one step at a time. It pulls tasks, fetches what they need, has them run, hands
// results in, and holds nothing it cannot lose. It does what worker/worker_loop.h does in C++; tests/golden holds both to the
// same recorded calls.
//
//   const loop = new WorkerLoop({worker: "w-1", concurrency: 2}, {transport, runner, cache, random, log, wake});
//   while (!loop.isDone) {
//     const next = loop.step(clock.now());
//     await until(next);                         // Or until `wake` was called.
//   }
//
//        +------------------------------ Sync: results, held leases, want ------------------------------+
//        v                                                                                              |
//   [pulling] --lease--> prepare -> [fetching] -> [running] -> contribution --small--> result --> [submitting]
//                                                                  +--large--> upload --^
//
// It has no clock and no timer of its own: times are milliseconds, and `now` never goes back. Calls go out through the
// transport and runs through the runner; when one of them ends, the loop notes it, calls `wake`, and acts upon it in its next
// step.
//
// Tasks of announced rounds are prepared beside those that run, and run when their rounds have opened and there is a place (see
// WorkerOptions.prepareAhead).
//
// A lease's time counts from when the request was SENT that granted or renewed it. One failed call is not a lost lease: only
// when its time has run out is the attempt stopped, and its result is still offered for a moment. A server drains a worker, and
// takes it back: drained, it finishes what it holds, wants nothing, and keeps a call parked by which it hears that it is wanted
// again.
import {create} from "@bufbuild/protobuf";

import {
  HeldLeaseSchema, type Lease, type LeaseUpdate, LeaseUpdate_Verdict, type ResultVerdict, ResultVerdict_Verdict,
  type SyncRequest, SyncRequestSchema, type SyncResponse, WorkService,
} from "../../gen/sheaf/v1/work_service_pb.js";
import {Backoff} from "../backoff.js";
import {fromDuration, toDuration} from "../durations.js";
import type {SheafError} from "../errors.js";
import type {Log} from "../log.js";
import type {Random} from "../random.js";
import {ChunkSize} from "../transfer/chunk_size.js";
import type {Transport} from "../transport.js";
import {Attempt, type AttemptParts} from "./attempt.js";
import type {BlobCache} from "./blob_cache.js";
import {Inbox} from "./inbox.js";
import type {Runner} from "./runner.js";

/** Those that this worker speaks. */
export const PROTOCOL_VERSION_MIN = 1;
export const PROTOCOL_VERSION_MAX = 2;

// A result is offered for this long after its lease lapsed: the server's clock decides, and says LEASE_LOST if so.
const DELIVERY_MARGIN = 5_000;
// What is left undelivered this long after the grace time is left to the leases' expiry.
const DRAIN_MARGIN = 10_000;
// A refusal that repeating cannot cure is repeated rarely: somebody may repair the server's or this worker's configuration.
const REFUSED_PAUSE_MIN = 30_000;
const REFUSED_PAUSE_MAX = 60_000;
// After a pause that is cut short: ten thousand workers see a server come back in one instant.
const END_PAUSE_WITHIN = 500;
// After a poll that brought nothing although the server could have kept it: a server that never parks must not be hammered.
const EMPTY_POLL_PAUSE = 20;
// How often to ask whether it is back in service, where a call is not parked until it is.
const DRAINED_PAUSE = 10_000;
// As work_service.proto allows.
const ITEMS_MAX = 256;
// Results of one call together, when there are several.
const RESULT_BYTES_MAX = 2 << 20;
const FINISHED_MAX = 1024;
// What a server says is not believed beyond these. A pause: the server's next_call_max, which keeps a million workers that do not
// wait at 70 calls a second.
const POLL_PAUSE_MAX = 4 * 3_600_000;
// Names and tokens of a lease: they are kept, and logged.
const NAME_LENGTH_MAX = 256;
const LOGGED_LENGTH_MAX = 1024;
// A call of ours has room for this and all else.
const INLINE_BYTES_MAX = 32 << 20;

const REFUSALS = new Set(["INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"]);

export interface WorkerOptions {
  /**
   * Names this worker; two that run at once never share it. One that is restarted may keep its name: it is sent again what it
   * held, and stays drained if it was.
   */
  worker: string;
  population?: string;
  softwareVersion?: string;
  labels?: Record<string, string>;
  /** Tasks at a time. */
  concurrency?: number;
  /** Tasks of announced rounds that it holds beside those, to prepare them before their rounds open. */
  prepareAhead?: number;
  /** How long a poll may be parked when there is no work. At most 60 s. */
  pollWaitMs?: number;
  /** How long an answer may take in addition. */
  callTimeoutMs?: number;
  /** When told to stop: how long what runs may go on before it is given back. */
  graceMs?: number;
  /** When the server drains it: finish what is held and be done, instead of waiting to be taken back into service. */
  exitWhenDrained?: boolean;
  /** What a server may make this worker download for one task, and return from it. */
  broadcastBytesMax?: number;
  contributionBytesMax?: number;
}

export interface LoopParts {
  transport: Transport;
  runner: Runner;
  cache: BlobCache;
  random: Random;
  log: Log;
  /** Called, also from within `step`, when there is reason to call `step` soon. Must not call it itself. */
  wake: () => void;
}

export type WorkerState = "idle" | "pulling" | "fetching" | "running" | "submitting" | "drained" | "draining" | "done";

/** What the loop did so far. */
export interface WorkerCounters {
  syncs: number;
  failedSyncs: number;
  leases: number;
  /** Attempts stopped because their lease lapsed, was cancelled or lost. */
  stopped: number;
  /** Results by what the server said of them: "ACCEPTED", "DUPLICATE", "LATE".. */
  verdicts: Record<string, number>;
  /** Results that could not be handed in before their lease was long gone. */
  undelivered: number;
}

/** A Sync that was sent and not answered yet. */
interface OpenSync {
  sent: number;
  protocolVersion: number;
  /** Empty if it asks for no leases. */
  pollId: string;
  /** The server may keep it for this long. */
  wait: number;
  draining: boolean;
  /** Tokens of the results it carries. */
  results: Set<string>;
  /** It leaves results out, and asks for nothing. */
  renewsOnly: boolean;
  abandon: () => void;
}

export class WorkerLoop {
  readonly counters: WorkerCounters = {syncs: 0, failedSyncs: 0, leases: 0, stopped: 0, verdicts: {}, undelivered: 0};

  private readonly options: Required<WorkerOptions>;
  private readonly parts: LoopParts;
  private readonly inbox: Inbox;
  private readonly attemptParts: AttemptParts;

  // In the order they came.
  private attempts: Attempt[] = [];
  // Tokens that were dealt with: a lease re-sent by an answer that was long under way is not run again.
  private readonly finished = new Set<string>();

  private readonly openSyncs = new Map<number, OpenSync>();
  private newestSync = 0;
  // Kept until an answer came.
  private pollId = "";
  private nextPoll = -Infinity;
  private readonly backoff = new Backoff();
  private backoffUntil = -Infinity;
  // The newest call was refused like one before, and its results may be why.
  private renewsFirst = false;
  private suggestedConcurrency = 0;
  // There are announced rounds.
  private hasAnnounced = false;
  private protocolVersion = PROTOCOL_VERSION_MAX;

  // As the server last said: it is given nothing until it is taken back into service.
  private isDrained = false;
  // The server keeps calls of a drained worker until it is taken back.
  private parksDrained = true;
  // Stopping.
  private isDraining = false;
  // The server has heard of it.
  private drainAnnounced = false;
  private graceEnd = Infinity;
  private hasEnded = false;
  private failure: SheafError | null = null;

  constructor(options: WorkerOptions, parts: LoopParts) {
    this.options = {
      population: "",
      softwareVersion: "",
      labels: {},
      concurrency: 1,
      prepareAhead: 0,
      pollWaitMs: 30_000,
      callTimeoutMs: 10_000,
      graceMs: 20_000,
      exitWhenDrained: false,
      broadcastBytesMax: 4 * 2 ** 30,
      contributionBytesMax: 2 ** 30,
      ...options,
    };
    this.parts = parts;
    this.inbox = new Inbox(parts.wake);
    this.attemptParts = {
      transport: parts.transport,
      runner: parts.runner,
      cache: parts.cache,
      random: parts.random,
      log: parts.log,
      inbox: this.inbox,
      callTimeoutMs: this.options.callTimeoutMs,
      broadcastBytesMax: this.options.broadcastBytesMax,
      contributionBytesMax: this.options.contributionBytesMax,
      chunkSize: new ChunkSize(),
      inlineBytesMax: 64 << 10,
      busy: 0,
      busyAhead: 0,
    };
  }

  /**
   * Does what is due at `now` and returns when there is more to do: infinite if only an event can change that, `now` or earlier
   * if at once.
   */
  step(now: number): number {
    for (const event of this.inbox.takeAll()) event(now);
    if (this.hasEnded) return Infinity;
    for (const attempt of this.attempts) attempt.step(now);
    this.expireLeases(now);
    this.sweepEndedAttempts();
    this.stepDrain(now);
    this.runOpened(now);
    if (!this.hasEnded && this.syncIsDue(now)) this.sendSync(now);
    return this.inbox.isEmpty ? this.nextStep(now) : now;
  }

  /** Stop: take nothing new, finish or give back what is held, hand in the last results. From the next step on. */
  requestDrain(): void {
    this.inbox.post((now) => this.startDrain("it was told to stop", now));
  }

  /**
   * What the loop waits out may be over: there is a new token, or a connection again. Ends a pause between failed calls within
   * half a second, at an instant drawn at random.
   */
  endPause(): void {
    this.inbox.post((now) => {
      if (now >= this.backoffUntil) return;
      this.backoffUntil = Math.min(this.backoffUntil, now + this.parts.random.between(0, END_PAUSE_WITHIN));
    });
  }

  /** A crash of the worker: nobody is told, and callbacks that come late fall into the void. */
  kill(): void {
    this.inbox.close();
    for (const attempt of this.attempts) attempt.cancel();
    for (const sync of this.openSyncs.values()) sync.abandon();
    this.hasEnded = true;
  }

  /** Nothing left to do, for ever. */
  get isDone(): boolean {
    return this.hasEnded;
  }

  /** Why, once done: null after a drain; FAILED_PRECONDITION with the server's sentence if it refused this protocol version. */
  get exitError(): SheafError | null {
    return this.failure;
  }

  get state(): WorkerState {
    if (this.hasEnded) return "done";
    if (this.isDraining) return "draining";
    const isAny = (...phases: string[]) => this.attempts.some((attempt) => phases.includes(attempt.phase));
    if (isAny("uploading", "ready")) return "submitting";
    if (isAny("running")) return "running";
    if (isAny("preparing", "prepared", "fetching")) return "fetching";
    if (this.isDrained) return "drained";
    return this.openSyncs.size === 0 ? "idle" : "pulling";
  }

  /** Leases held, including those whose result is on its way. */
  get numHeld(): number {
    return this.attempts.length;
  }

  // --- Leases ---

  private takeLease(lease: Lease, sent: number, now: number): void {
    const remaining = fromDuration(lease.remaining);
    const known = this.findAttempt(lease.leaseToken);
    if (known !== undefined) return known.extend(sent, remaining);
    if (this.finished.has(lease.leaseToken)) return;
    const hasNames = [lease.leaseToken, lease.task, lease.round].every((name) => name.length <= NAME_LENGTH_MAX);
    if (!hasNames || this.attempts.length >= ITEMS_MAX) {
      this.parts.log.warn(
        `left a lease to its expiry: ${hasNames ? `there are ${ITEMS_MAX} already` : "its names are too long"}`);
      return;
    }
    if (sent + remaining <= now) {
      this.parts.log.info(`task ${lease.task}: its lease expired before the answer arrived`);
      return;
    }
    ++this.counters.leases;
    const hasRoom = (lease.announced ? this.wantedAhead() : this.wantedLeases()) > 0;
    if (!hasRoom) {
      // It waits for the server to hear of it, with what that takes.
      lease.computation = undefined;
      lease.payload = new Uint8Array();
      lease.aggregate = undefined;
    }
    const attempt = new Attempt(lease, this.attemptParts);
    attempt.extend(sent, remaining);
    this.attempts.push(attempt);
    if (this.isDraining) return attempt.release("the worker is stopping");
    if (this.isDrained) return attempt.release("the worker was drained");
    if (!hasRoom) return attempt.release("the worker got more leases than it asked for");
    this.parts.log.debug(`task ${lease.task}: attempt ${lease.attempt} of ${lease.computation?.name}`);
    attempt.start(now);
  }

  private findAttempt(token: string): Attempt | undefined {
    return this.attempts.find((attempt) => attempt.token === token);
  }

  private forget(token: string): void {
    this.attempts = this.attempts.filter((attempt) => attempt.token !== token);
    this.finished.add(token);
    // A set keeps the order in which its elements came.
    if (this.finished.size > FINISHED_MAX) this.finished.delete(this.finished.values().next().value!);
  }

  private stop(attempt: Attempt, why: string): void {
    this.parts.log.info(`task ${attempt.lease.task}: stopped, because ${why}`);
    ++this.counters.stopped;
    attempt.cancel();
  }

  private expireLeases(now: number): void {
    // Gone, but not finished: a server that was restarted under another clock may hold the lease for ours still, and send it
    // again.
    this.attempts = this.attempts.filter((attempt) => {
      if (attempt.isReady) {
        if (now < attempt.deadline + DELIVERY_MARGIN) return true;
        this.parts.log.warn(`task ${attempt.lease.task}: its result could not be handed in before its lease was over`);
        ++this.counters.undelivered;
        attempt.cancel();
        return false;
      }
      if (attempt.phase === "ended" || now < attempt.deadline) return true;
      this.stop(attempt, "its lease lapsed");
      return false;
    });
  }

  private sweepEndedAttempts(): void {
    for (const attempt of this.attempts.filter(({phase}) => phase === "ended")) this.forget(attempt.token);
  }

  // Attempts that run or are about to, and runs that were stopped and have not noticed.
  private get numRunning(): number {
    const active = this.attempts.filter((attempt) => !attempt.isReady && attempt.phase !== "ended" && !attempt.isAhead);
    return this.attemptParts.busy + active.filter(({isBusy}) => !isBusy).length;
  }

  // Runs that were stopped and have not noticed.
  private get numUnnoticed(): number {
    const busy = this.attempts.filter((attempt) =>
      attempt.isBusy && !attempt.isAhead && !attempt.isReady && attempt.phase !== "ended");
    return this.attemptParts.busy - busy.length;
  }

  private wantedLeases(): number {
    if (this.isDraining || this.isDrained) return 0;
    let limit = this.options.concurrency;
    if (this.suggestedConcurrency > 0) limit = Math.min(limit, this.suggestedConcurrency);
    // Whose round has opened runs before anything new.
    const numOpened = this.attempts.filter((attempt) => attempt.isAhead && attempt.isOpen).length;
    return Math.min(Math.max(limit - this.numRunning - numOpened, 0), ITEMS_MAX);
  }

  private wantedAhead(): number {
    if (this.isDraining || this.isDrained) return 0;
    // Those that run by now leave their place to others. A prepare that was stopped and has not noticed takes one.
    const taken = this.attemptParts.busyAhead + this.attempts.filter((attempt) => attempt.isAhead && !attempt.isBusy).length;
    return Math.min(Math.max(this.options.prepareAhead - taken, 0), ITEMS_MAX);
  }

  private wantsPoll(): boolean {
    return this.wantedLeases() > 0 || (this.hasAnnounced && this.wantedAhead() > 0);
  }

  // Those that have prepared, and whose rounds have opened, as far as there is room, the oldest lease first.
  private runOpened(now: number): void {
    let places = this.options.concurrency - this.numRunning;
    for (const attempt of this.attempts) {
      if (places <= 0) return;
      if (attempt.phase !== "prepared" || !attempt.isOpen) continue;
      attempt.goOn(now);
      --places;
    }
  }

  private releaseAhead(reason: string): void {
    for (const attempt of this.attempts) if (attempt.isAhead && !attempt.isOpen) attempt.release(reason);
  }

  // --- Sync ---

  private isInFlight(attempt: Attempt): boolean {
    for (const sync of this.openSyncs.values()) if (sync.results.has(attempt.token)) return true;
    return false;
  }

  private hasUnsentResult(): boolean {
    return this.attempts.some((attempt) => attempt.isReady && !this.isInFlight(attempt));
  }

  private nextRenewal(): number {
    let next = Infinity;
    for (const attempt of this.attempts) if (attempt.phase !== "ended") next = Math.min(next, attempt.renewTime);
    return next;
  }

  private syncIsDue(now: number): boolean {
    if (now < this.backoffUntil) return false;
    if (now >= this.nextRenewal()) return true;
    const newest = this.openSyncs.get(this.newestSync);
    // An open call is waited for, unless it is parked: the server ends it when a newer one comes.
    if (newest !== undefined && newest.wait <= 0) return false;
    if (this.hasUnsentResult()) return true;
    if (this.isDraining && !this.drainAnnounced) return newest === undefined || !newest.draining;
    return newest === undefined && (this.wantsPoll() || this.isDrained) && now >= this.nextPoll;
  }

  private sendSync(now: number): void {
    const sync: OpenSync = {
      sent: now, protocolVersion: this.protocolVersion, pollId: "", wait: 0, draining: this.isDraining, results: new Set(),
      renewsOnly: this.renewsFirst && this.hasUnsentResult(), abandon: () => {},
    };
    const request = create(SyncRequestSchema, {
      protocolVersion: this.protocolVersion,
      worker: this.options.worker,
      population: this.options.population,
      softwareVersion: this.options.softwareVersion,
      computations: this.parts.runner.offers(),
      labels: this.options.labels,
      draining: this.isDraining,
    });
    if (!sync.renewsOnly) this.addResults(now, request, sync);
    this.addHeld(now, request, sync);
    if (!sync.renewsOnly) this.addPoll(now, request, sync);

    ++this.counters.syncs;
    const id = ++this.newestSync;
    const timeoutMs = fromDuration(request.wait) + this.options.callTimeoutMs;
    this.openSyncs.set(id, sync);
    sync.abandon = this.parts.transport.call(WorkService.method.sync, request, {timeoutMs}, (error, response) => {
      this.inbox.post((when) => this.onSyncDone(id, error, response, when));
    });
  }

  private addResults(now: number, request: SyncRequest, sync: OpenSync): void {
    let bytes = 0;
    for (const attempt of this.attempts) {
      if (!attempt.isReady || this.isInFlight(attempt) || request.results.length === ITEMS_MAX) continue;
      const {outcome} = attempt.result;
      if (outcome.case === "contribution") bytes += outcome.value.length;
      if (request.results.length > 0 && bytes > RESULT_BYTES_MAX) break;
      attempt.noteHandedIn(now);
      request.results.push(attempt.result);
      sync.results.add(attempt.token);
    }
  }

  private addHeld(now: number, request: SyncRequest, sync: OpenSync): void {
    for (const attempt of this.attempts) {
      if (sync.results.has(attempt.token) || attempt.phase === "ended") continue;
      if (request.held.length === ITEMS_MAX) break;
      request.held.push(create(HeldLeaseSchema, {
        task: attempt.lease.task, leaseToken: attempt.token, progress: attempt.progress,
        announced: !attempt.isOpen,
      }));
    }
    // Where runs that were stopped go on in all places, what has opened may run elsewhere when its lease is over.
    const hasPlace = this.numUnnoticed < this.options.concurrency;
    for (const attempt of this.attempts) attempt.noteRenewalSent(now, hasPlace);
  }

  private addPoll(now: number, request: SyncRequest, sync: OpenSync): void {
    // Back in time for the next renewal, so that a parked call need not be overtaken for it.
    const wait = Math.min(this.options.pollWaitMs, (this.nextRenewal() - now) * 0.8);
    if (this.isDrained && !this.isDraining) {
      // Only to hear that it is wanted again.
      request.drained = true;
      if (!this.parksDrained) return;
      request.wait = toDuration(wait);
      sync.wait = wait;
      return;
    }
    const want = this.wantedLeases();
    const wantAnnounced = this.wantsPoll() ? this.wantedAhead() : 0;
    const supersedesPoll = (this.openSyncs.get(this.newestSync)?.pollId ?? "") !== "";
    if (want + wantAnnounced === 0 || (now < this.nextPoll && !supersedesPoll && request.results.length === 0)) return;
    if (this.pollId === "") this.pollId = this.parts.random.token(16);
    request.want = want;
    request.wantAnnounced = wantAnnounced;
    request.pollId = this.pollId;
    request.wait = toDuration(wait);
    sync.pollId = this.pollId;
    sync.wait = wait;
  }

  private onSyncDone(id: number, error: SheafError | null, response: SyncResponse | null, now: number): void {
    const sync = this.openSyncs.get(id);
    if (sync === undefined || this.hasEnded) return;
    this.openSyncs.delete(id);
    const isNewest = id === this.newestSync;
    if (error === null) return this.onAnswer(sync, response!, isNewest, now);
    ++this.counters.failedSyncs;
    // When an overtaken call fails, the newer one tells how the server is; its results go into the next.
    if (isNewest || error.code === "FAILED_PRECONDITION") this.onSyncFailed(sync, error, now);
  }

  private onSyncFailed(sync: OpenSync, error: SheafError, now: number): void {
    // Perhaps it is another one when it is back.
    this.parksDrained = true;
    if (error.code === "FAILED_PRECONDITION") return this.onVersionRefused(sync, error);
    const {log, random} = this.parts;
    if (REFUSALS.has(error.code)) {
      // Somebody is about to mend it, or else the leases are lost: a token is replaced and revoked, in one order or the other.
      const isUrgent = error.retryAfterMs !== undefined || this.attempts.length > 0;
      if (!isUrgent || this.backoff.failures === 0) {
        log.error(`the server refused this worker, which tries again ${isUrgent ? "soon" : "in a minute"}: ${error}`);
      }
      const pause = this.backoff.next(error, random);
      this.backoffUntil = now + (isUrgent ? pause : random.between(REFUSED_PAUSE_MIN, REFUSED_PAUSE_MAX));
      return;
    }
    // More than once: there may be no room for its results for longer than the leases last, theirs and the others'.
    this.renewsFirst = error.code === "RESOURCE_EXHAUSTED" && sync.results.size > 0 && this.backoff.failures > 0;
    // Said once per outage.
    if (this.backoff.failures === 0) log.warn(`no answer, trying again: ${error}`);
    this.backoffUntil = now + this.backoff.next(error, random);
  }

  private onVersionRefused(sync: OpenSync, error: SheafError): void {
    // Of a call that was overtaken: its successor says a lower one already.
    if (sync.protocolVersion > this.protocolVersion) return;
    if (this.protocolVersion === PROTOCOL_VERSION_MIN) return this.finish(error);
    // 0.1 refuses whoever also speaks later ones; those after it answer in their highest.
    --this.protocolVersion;
    this.parts.log.info(`the server does not serve protocol ${sync.protocolVersion}; trying ${this.protocolVersion}`);
  }

  private onAnswer(sync: OpenSync, response: SyncResponse, isNewest: boolean, now: number): void {
    // Renewals tell nothing of whether there is room again.
    if (!sync.renewsOnly) {
      if (this.backoff.failures > 0) this.parts.log.info("the server answers again");
      this.backoff.reset();
    }
    this.renewsFirst = false;
    this.backoffUntil = -Infinity;
    if (response.inlineBytesMax > 0n) {
      this.attemptParts.inlineBytesMax = Math.min(Number(response.inlineBytesMax), INLINE_BYTES_MAX);
    }
    // Another server may be there since.
    if (response.protocolVersionMax > 0) {
      this.protocolVersion = Math.min(Math.max(response.protocolVersionMax, PROTOCOL_VERSION_MIN), PROTOCOL_VERSION_MAX);
    }
    this.suggestedConcurrency = response.suggestedConcurrency;
    this.hasAnnounced = response.hasAnnounced;
    if (sync.draining) this.drainAnnounced = true;

    // Of what one call may ask for; there is no answer to more.
    for (const verdict of response.verdicts.slice(0, ITEMS_MAX)) this.onVerdict(verdict);
    // A result the answer passed over would be offered for ever.
    for (const token of sync.results) {
      const attempt = this.findAttempt(token);
      if (attempt === undefined) continue;
      this.parts.log.warn(`task ${attempt.lease.task}: the server said nothing of its result; forgetting it`);
      this.forget(token);
    }
    for (const update of response.held.slice(0, ITEMS_MAX)) this.onLeaseUpdate(update, sync.sent);
    this.sweepEndedAttempts();
    // What an overtaken call was told may be older than what the newer one was.
    const wasDrained = this.isDrained;
    if (isNewest) this.onServiceChanged(response.drain, now);
    for (const lease of response.leases.slice(0, ITEMS_MAX)) {
      this.takeLease(lease, sync.sent, now);
      this.findAttempt(lease.leaseToken)?.noteGrant(response.grantTime);
    }

    // A poll is over when leases came for it, or when its last repetition was answered.
    if (sync.pollId === this.pollId && (isNewest || response.leases.length > 0)) this.pollId = "";
    if (!isNewest) return;
    let pauseMin = Math.min(Math.max(fromDuration(response.nextMin), 0), POLL_PAUSE_MAX);
    let pauseMax = Math.min(Math.max(fromDuration(response.nextMax), 0), POLL_PAUSE_MAX);
    const hasNoTask = response.leases.length === 0 && response.verdicts.length === 0;
    // Servers before 0.2 do not park the calls of a drained worker, but do park them when it is in service again, and leave it
    // there.
    const couldWait = hasNoTask && response.held.every(({verdict}) => verdict === LeaseUpdate_Verdict.HELD);
    const cameEarly = now - sync.sent < sync.wait / 2;
    if (this.isDrained && wasDrained && couldWait && cameEarly) this.parksDrained = false;
    if (this.isDrained && !this.parksDrained) {
      pauseMin = Math.max(pauseMin, DRAINED_PAUSE / 2);
      pauseMax = Math.max(pauseMax, DRAINED_PAUSE);
    }
    if (hasNoTask && response.held.length === 0 && cameEarly) pauseMax = Math.max(pauseMax, EMPTY_POLL_PAUSE);
    // To be found waiting when it is wanted again, or to go on at once.
    if (this.isDrained !== wasDrained) pauseMin = pauseMax = 0;
    this.nextPoll = now + (pauseMax > pauseMin ? this.parts.random.between(pauseMin, pauseMax) : pauseMin);
  }

  private onVerdict(verdict: ResultVerdict): void {
    const attempt = this.findAttempt(verdict.leaseToken);
    if (attempt === undefined) return;
    const name = ResultVerdict_Verdict[verdict.verdict] ?? String(verdict.verdict);
    this.counters.verdicts[name] = (this.counters.verdicts[name] ?? 0) + 1;
    const {log} = this.parts;
    const task = `task ${attempt.lease.task}`;
    switch (verdict.verdict) {
      case ResultVerdict_Verdict.REJECTED:
        log.warn(`${task}: the server rejected the result: ${verdict.message.slice(0, LOGGED_LENGTH_MAX)}`);
        break;
      case ResultVerdict_Verdict.LEASE_LOST:
        log.warn(`${task}: the lease was lost before its result arrived`);
        break;
      case ResultVerdict_Verdict.UNKNOWN_TASK:
        log.warn(`${task}: the server does not know it any more`);
        break;
      case ResultVerdict_Verdict.LATE:
        log.info(`${task}: the round ended before its result arrived`);
        break;
      case ResultVerdict_Verdict.NOT_NEEDED:
        log.info(`${task}: the round had enough before its result arrived`);
        break;
      default:
        log.debug(`${task}: ${name}`);
    }
    this.forget(verdict.leaseToken);
  }

  private onLeaseUpdate(update: LeaseUpdate, sent: number): void {
    const attempt = this.findAttempt(update.leaseToken);
    if (attempt === undefined) return;
    switch (update.verdict) {
      case LeaseUpdate_Verdict.CANCELLED:
        // Of a finished attempt the verdict on its result decides: it may have been accepted by an answer that got lost.
        if (!attempt.isReady) this.stop(attempt, "it is not needed any more");
        break;
      case LeaseUpdate_Verdict.LOST:
        if (!attempt.isReady) this.stop(attempt, "the server took its lease away");
        break;
      case LeaseUpdate_Verdict.OPENED:
        attempt.open(update.broadcastDigest);
        attempt.extend(sent, fromDuration(update.remaining));
        break;
      default:
        attempt.extend(sent, fromDuration(update.remaining));
    }
  }

  // --- Out of service, and back ---

  private onServiceChanged(isDrained: boolean, now: number): void {
    if (isDrained && this.options.exitWhenDrained) return this.startDrain("the server said so", now);
    if (isDrained === this.isDrained) return;
    this.isDrained = isDrained;
    this.parksDrained = true;
    this.parts.log.info(isDrained
      ? `drained by an operator: finishing what it holds (${this.attempts.length}), and waiting to be taken back into service`
      : "taken back into service");
    if (isDrained) this.releaseAhead("the worker was drained");
  }

  // --- Stopping ---

  private startDrain(why: string, now: number): void {
    if (this.isDraining) return;
    this.parts.log.info(`stopping, because ${why}; leases held: ${this.attempts.length}`);
    this.isDraining = true;
    this.graceEnd = now + this.options.graceMs;
    this.releaseAhead("the worker is stopping");
  }

  private stepDrain(now: number): void {
    if (!this.isDraining) return;
    if (now >= this.graceEnd) {
      for (const attempt of this.attempts) if (!attempt.isReady) attempt.release("the worker is stopping");
    }
    const serverKnows = this.drainAnnounced || this.backoff.failures > 0;
    if ((this.attempts.length === 0 && serverKnows) || now >= this.graceEnd + DRAIN_MARGIN) this.finish(null);
  }

  private finish(error: SheafError | null): void {
    for (const attempt of this.attempts) attempt.cancel();
    this.attempts = [];
    for (const sync of this.openSyncs.values()) sync.abandon();
    this.failure = error;
    this.hasEnded = true;
  }

  private nextStep(now: number): number {
    if (this.hasEnded) return Infinity;
    if (this.syncIsDue(now)) return now;
    // The next call: for a renewal, a poll or a result, but not during a backoff.
    let sync = this.nextRenewal();
    const isOpen = this.openSyncs.has(this.newestSync);
    if (!isOpen && (this.wantsPoll() || this.isDrained)) sync = Math.min(sync, this.nextPoll);
    if (this.hasUnsentResult() || (this.isDraining && !this.drainAnnounced)) sync = isOpen ? sync : now;
    let next = Math.max(sync, this.backoffUntil);
    for (const attempt of this.attempts) {
      next = Math.min(next, attempt.nextTime);
      next = Math.min(next, attempt.isReady ? attempt.deadline + DELIVERY_MARGIN : attempt.deadline);
    }
    if (this.isDraining) next = Math.min(next, now < this.graceEnd ? this.graceEnd : this.graceEnd + DRAIN_MARGIN);
    return next;
  }
}
