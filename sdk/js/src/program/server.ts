// A server, as programs see it.
//
//   const server = connect({server: "https://HOST:7443"});
//   const result = await server.run("mean_age", {outputs: {age: weighted_mean([])}, tasks: 20});
//   console.log(result.get("age").item(), result.numClients);
import {type GetServerInfoResponse, InspectionService} from "../../gen/sheaf/v1/inspection_service_pb.js";
import {type Round as RoundMessage, RoundState} from "../../gen/sheaf/v1/round_pb.js";
import {RoundService} from "../../gen/sheaf/v1/round_service_pb.js";
import {ConnectTransport, type Token} from "../connect_transport.js";
import {toDuration} from "../durations.js";
import {addNote, dataLoss, invalidArgument, RoundFailed, RoundStuck, SheafError} from "../errors.js";
import {type Random, SystemRandom} from "../random.js";
import {RangeJoiner} from "../transfer/range_joiner.js";
import {sha256Hex} from "../transfer/sha256.js";
import type {Transport} from "../transport.js";
import {type Clock, SystemClock} from "../worker/clock.js";
import {ownOrigin} from "../own_origin.js";
import {Caller} from "./caller.js";
import {Result} from "./result.js";
import {announceRound, cancelRound, createRound, INLINE_BYTES_MAX, openRound, roundOf, uploadBroadcast} from "./round_calls.js";
import type {Broadcast, RoundOptions} from "./round_spec.js";
import {RoundView} from "./round_view.js";
import {type ChangingOptions, RoundsAhead} from "./rounds_ahead.js";

// How long one call stays parked at the server, and what it may take beyond that before it counts as lost.
const POLL_MS = 20_000;
const POLL_GRACE_MS = 10_000;
// After an answer without news that came although the server could have waited.
const NO_NEWS_MS = 100;
// As much as is read of one aggregate unless somebody asks for more.
const READ_BYTES_MAX = 1 << 30;

export interface WaitOptions {
  /** Seconds; without it there is no limit but the round's own deadline. */
  timeout?: number;
  /** Called whenever the round has changed. */
  onProgress?: (round: RoundView) => void;
}

/** How the rounds of a loop follow one another, beside how each is waited for. */
export interface LoopOptions extends WaitOptions {
  /** How many; left out, it goes on until the loop is left. */
  rounds?: number;
  /**
   * How many rounds are announced ahead of the one that runs, so that workers read and preprocess the data of their tasks meanwhile
   * (0). All options are asked for then, but for the broadcast, which is asked for when the round is opened: the values that the
   * rounds release are the same with any `ahead`.
   */
  ahead?: number;
  /**
   * Called with each result before it comes, and awaited. With `ahead` the next round is opened right after it, so that the loop's
   * body, which evaluates, runs beside the workers.
   */
  apply?: (result: Result) => unknown;
  /**
   * Each round continues the one before it: tasks that still run when a round has its `goal` are not cancelled, but go on in the
   * next, where their contributions count (see `staleness` of RoundOptions). Give a goal, and more tasks than that. One round is
   * announced ahead at least.
   */
  buffered?: boolean;
}

const LOOP_KNOWN: ReadonlySet<string> = new Set<keyof LoopOptions>(["rounds", "ahead", "apply", "buffered", "timeout", "onProgress"]);

/** A round at a server. What its properties say is what was seen last: `refresh` and `wait` look again. */
export class Round extends RoundView {
  private readonly caller: Caller;

  constructor(caller: Caller, message: RoundMessage) {
    super(message);
    this.caller = caller;
  }

  /** Looks at it now. NOT_FOUND if it is not there any more. */
  async refresh(): Promise<this> {
    this.message = roundOf(await this.caller.call(RoundService.method.getRound, {round: this.id}));
    return this;
  }

  /**
   * Waits until it has ended, whichever way. Throws RoundStuck if nothing of it runs or waits, because its last tasks were
   * given up: it would only wait for the deadline; and DEADLINE_EXCEEDED after the timeout. Then the round goes on at the
   * server.
   */
  async wait(options: WaitOptions = {}): Promise<this> {
    await this.waitFor(options, 0);
    return this;
  }

  /**
   * Waits as `wait` does, and reads what it released, `bytesMax` at the most. Throws RoundFailed if it released nothing, with
   * the server's reason.
   */
  async result(options: WaitOptions & {bytesMax?: number} = {}): Promise<Result> {
    const bytesMax = options.bytesMax ?? READ_BYTES_MAX;
    let file: Uint8Array = new Uint8Array();
    if (!this.hasEnded) file = await this.waitFor(options, Math.min(INLINE_BYTES_MAX, bytesMax));
    if (this.message.state !== RoundState.SUCCEEDED) {
      const ended = this.message.state === RoundState.CANCELLED ? "was cancelled" : "failed";
      throw new RoundFailed(`round ${this.id} ${ended}: ${this.error}`, this.id, this.state);
    }
    if (file.length === 0) return new Result(this, await this.readAggregate(bytesMax));
    const actual = sha256Hex(file);
    if (actual !== this.message.aggregate?.digest) throw dataLoss(`the aggregate of round ${this.id} arrived damaged; read again`);
    return new Result(this, file);
  }

  /**
   * Opens a round that `announce` made: its tasks get this broadcast, and are computed. Opening it again with the same broadcast
   * changes nothing. FAILED_PRECONDITION if it was opened with another one, was not announced, or has ended: also because it
   * was not opened within its announceDeadline.
   */
  async open(broadcast?: Broadcast): Promise<this> {
    this.message = await openRound(this.caller, this.message, broadcast);
    return this;
  }

  /** Ends it without an aggregate. FAILED_PRECONDITION if it ended otherwise before. */
  async cancel(reason = "cancelled by its program"): Promise<this> {
    this.message = await cancelRound(this.caller, this.id, reason);
    return this;
  }

  /** Why it is not done yet, or how it ended: a few lines. Not for tokens of workers. */
  async explain(): Promise<string> {
    const {summary, reasons, hints} = await this.caller.call(InspectionService.method.explainRound, {round: this.id});
    return [summary, ...reasons.map((reason) => `  - ${reason}`), ...hints.map((hint) => `  hint: ${hint}`)].join("\n");
  }

  // What it released, if that has at most so many bytes.
  private async waitFor({timeout, onProgress}: WaitOptions, aggregateBytesMax: number): Promise<Uint8Array> {
    const {clock} = this.caller;
    const end = timeout === undefined ? Infinity : clock.now() + timeout * 1000;
    for (let {etag} = this.message;; etag = this.message.etag) {
      const wait = Math.min(Math.max(end - clock.now(), 0), POLL_MS);
      const asked = clock.now();
      const answer = await this.caller.call(RoundService.method.getRound, {
        round: this.id, etag, wait: toDuration(wait), aggregateBytesMax: BigInt(aggregateBytesMax),
      }, wait + POLL_GRACE_MS);
      this.message = roundOf(answer);
      onProgress?.(this);
      if (this.hasEnded) return answer.aggregateFile;
      if (this.isStuck) {
        throw new RoundStuck(`round ${this.id} is stuck: ${this.tasks.buried} of its tasks failed as often as it allows. ` +
          await this.explain(), this.id, this.state);
      }
      if (clock.now() >= end) {
        throw new SheafError("DEADLINE_EXCEEDED", `round ${this.id} has not ended within ${timeout} s; it goes on: see its ` +
          "explain()");
      }
      if (this.message.etag === etag && clock.now() - asked < wait / 2) await this.caller.pause(NO_NEWS_MS);
    }
  }

  private async readAggregate(bytesMax: number): Promise<Uint8Array> {
    const file = new RangeJoiner();
    for (;;) {
      const {data, sizeBytes, digest} = await this.caller.call(
        RoundService.method.readAggregate, {round: this.id, offset: BigInt(file.offset)});
      if (sizeBytes > BigInt(bytesMax)) {
        throw new SheafError("RESOURCE_EXHAUSTED", `the aggregate of round ${this.id} has ${sizeBytes} bytes, and no more ` +
          `than ${bytesMax} are taken here`);
      }
      file.add(data, Number(sizeBytes));
      if (file.complete) return file.take(digest);
    }
  }
}

/** A server. Made by `connect`. Calls that it does not answer, or puts off, are repeated: a restart of it is survived. */
export class Server {
  private readonly caller: Caller;
  private readonly population: string;

  constructor(caller: Caller, population: string) {
    this.caller = caller;
    this.population = population;
  }

  /**
   * One round, from its broadcast to its result.
   *
   *     const result = await server.run("mean_age", {outputs: {age: weighted_mean([])}, tasks: 20});
   *
   * Throws RoundFailed if the round released nothing.
   */
  async run(computation: string, options: RoundOptions, waiting: WaitOptions = {}): Promise<Result> {
    return (await this.create(computation, options)).result(waiting);
  }

  /** Uploads the broadcast, if there is one, creates a round, and does not wait for it. */
  async create(computation: string, options: RoundOptions): Promise<Round> {
    return new Round(this.caller, await createRound(this.caller, computation, options, this.population));
  }

  /**
   * Creates a round whose broadcast is not known yet: workers prepare its tasks, and compute when it is opened.
   *
   *     const round = await server.announce("tags", {outputs, tasks: 50});
   *     const result = await (await round.open({w})).result();
   *
   * It fails if it is not opened within its announceDeadline.
   */
  async announce(computation: string, options: Omit<RoundOptions, "broadcast">): Promise<Round> {
    return new Round(this.caller, await announceRound(this.caller, computation, options, this.population));
  }

  /**
   * One round after the other; the results, as they come.
   *
   *     for await (const result of server.loop("tags", {outputs, tasks: 50, broadcast: () => ({w})}, {rounds: 20})) update(w, result);
   *
   * Each of the options may also be a function without arguments, asynchronous if need be, which is called before each round:
   * after the loop's body has seen the result of the last one. An error says in which round it was thrown.
   *
   * A loop that is left, or in which something is thrown, cancels what it began `ahead`.
   */
  async *loop(computation: string, options: ChangingOptions, how: LoopOptions = {}): AsyncGenerator<Result, void> {
    checkLoop(options, how);
    const {rounds = Infinity, ahead = 0, buffered = false, apply, ...waiting} = how;
    const begun = new RoundsAhead(this.caller, computation, options, this.population, {rounds, ahead, buffered});
    try {
      while (begun.hasNext) {
        let result: Result;
        try {
          result = await new Round(this.caller, await begun.next()).result(waiting);
          if (apply !== undefined) {
            await apply(result);
            await begun.openEarly();
          }
        } catch (error) {
          addNote(error, `in round ${begun.number}${rounds === Infinity ? "" : ` of ${rounds}`} of the loop`);
          throw error;
        }
        yield result;
      }
    } finally {
      await begun.cancel();
    }
  }

  /** The round of this id, as it is now. NOT_FOUND if there is none. */
  async round(id: string): Promise<Round> {
    return new Round(this.caller, roundOf(await this.caller.call(RoundService.method.getRound, {round: id})));
  }

  /** The rounds of the population, newest first; those in these states, and of this job. Read page by page. */
  async *rounds({states = [], job = ""}: {states?: readonly string[]; job?: string} = {}): AsyncGenerator<Round, void> {
    const numbers = states.map((name) => {
      const state = (RoundState as unknown as Record<string, RoundState | undefined>)[name.toUpperCase()];
      if (state === undefined) throw invalidArgument(`there is no state "${name}" of rounds`);
      return state;
    });
    for (let pageToken = "";;) {
      const page = await this.caller.call(
        RoundService.method.listRounds, {population: this.population, states: numbers, job, pageToken});
      for (const message of page.rounds) yield new Round(this.caller, message);
      if (page.nextPageToken === "") return;
      if (page.nextPageToken === pageToken) throw dataLoss("the server's list of rounds does not end");
      pageToken = page.nextPageToken;
    }
  }

  /**
   * Uploads a broadcast, once for several rounds; its digest, for their `broadcast`. What the server has already does not
   * travel. It keeps what no round names for an hour.
   */
  upload(content: Exclude<Broadcast, string>): Promise<string> {
    return uploadBroadcast(this.caller, content, this.population);
  }

  /** Version, uptime, store, operators and limits of the server: sheaf.v1.GetServerInfoResponse. */
  info(): Promise<GetServerInfoResponse> {
    return this.caller.call(InspectionService.method.getServerInfo, {});
  }
}

// What types do not hold in plain JavaScript: a loop that takes its rounds for something else would not end.
function checkLoop(options: ChangingOptions, how: LoopOptions): void {
  if (typeof options !== "object" || options === null) {
    throw invalidArgument("the options of a loop are an object; what changes from round to round is a function in it, such as " +
      "broadcast: () => ({w})");
  }
  if (typeof how !== "object" || how === null) throw invalidArgument(`how many rounds a loop has is said by {rounds: ${how}}`);
  for (const name of Object.keys(how)) {
    if (!LOOP_KNOWN.has(name)) throw invalidArgument(`a loop has no argument ${name}; it has ${[...LOOP_KNOWN].join(", ")}`);
  }
}

export interface ServerConfig {
  /** "https://HOST:PORT" or "http://HOST:PORT". In a page: its own origin if left out; in Node: SHEAF_SERVER. */
  server?: string;
  /** The token that proves who we are, or a function that gives the one that is valid now. */
  token?: Token;
  /** Send the token even where others on the network can read it. */
  insecure?: boolean;
  /** Whose rounds ("default"). */
  population?: string;
  /** How long a call goes on trying while the server cannot be reached, in seconds. */
  seconds?: number;
  /** For tests: another network, time and chance. */
  transport?: Transport;
  clock?: Clock;
  random?: Random;
}

/** A server, for programs. Calls are made when something is asked of it. FAILED_PRECONDITION: the token would travel in the clear. */
export function connect(config: ServerConfig | string = {}): Server {
  const {server, token, insecure, population, seconds = 30, transport, clock = new SystemClock(),
         random = new SystemRandom()} = typeof config === "string" ? {server: config} as ServerConfig : config;
  const inner = transport ?? new ConnectTransport({server: server ?? ownOrigin(), token, insecure});
  return new Server(new Caller(inner, clock, random, seconds * 1000), population || "default");
}
