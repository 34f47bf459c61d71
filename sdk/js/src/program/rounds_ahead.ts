// The rounds of a loop up to when they run: announced ahead, and opened in their order.
import type {Round as RoundMessage} from "../../gen/sheaf/v1/round_pb.js";
import {invalidArgument, SheafError} from "../errors.js";
import {BroadcastPatches} from "./broadcast_patches.js";
import type {Caller} from "./caller.js";
import {announceRound, cancelRound, createRound, openRound} from "./round_calls.js";
import {checkSeconds, type RoundOptions} from "./round_spec.js";

type Changing<T> = T | (() => T | Promise<T>);
/** The arguments of a loop's rounds: each a value, or a function that is called before each round. */
export type ChangingOptions = {[Name in keyof RoundOptions]: Changing<RoundOptions[Name]>};

// What a server takes a deadline to be that nobody has set, in seconds; the longest that it takes.
const DEADLINE = 3600;
const DEADLINE_MAX = 365 * 86_400;
// Who ends a loop does not wait for a server that is gone.
const CANCEL_MS = 5_000;

/**
 * One loop's.
 *
 *     const ahead = new RoundsAhead(caller, "tags", options, "default", {rounds: 20, ahead: 2, buffered: false});
 *     while (ahead.hasNext) run(await ahead.next());   // Open; the two that come after it are announced.
 *     await ahead.cancel();
 */
export class RoundsAhead {
  /** Of the round that the last operation was about. */
  number = 0;

  private readonly caller: Caller;
  private readonly computation: string;
  private readonly options: Omit<ChangingOptions, "broadcast">;
  private readonly broadcast: ChangingOptions["broadcast"];
  private readonly population: string;
  private readonly rounds: number;
  private readonly ahead: number;
  private readonly buffered: boolean;
  private readonly patches = new BroadcastPatches();
  private readonly announced: RoundMessage[] = [];
  private opened: RoundMessage | null = null;
  // Id of the round that was announced last.
  private newest = "";
  private numBegun = 0;
  private numGiven = 0;

  constructor(
    caller: Caller, computation: string, options: ChangingOptions, population: string,
    how: {rounds: number; ahead: number; buffered: boolean},
  ) {
    if (!(Number.isInteger(how.ahead) && how.ahead >= 0)) {
      throw invalidArgument(`a loop announces 0 or more rounds ahead, and not ${how.ahead}`);
    }
    this.caller = caller;
    this.computation = computation;
    ({broadcast: this.broadcast, ...this.options} = options);
    this.population = population;
    this.rounds = how.rounds;
    this.ahead = how.buffered ? Math.max(how.ahead, 1) : how.ahead;
    this.buffered = how.buffered;
  }

  /** Whether there is one more round to come. */
  get hasNext(): boolean {
    return this.numGiven < this.rounds;
  }

  /** The next round, open. */
  async next(): Promise<RoundMessage> {
    const opened = this.opened ?? await this.open();
    this.opened = null;
    this.number = ++this.numGiven;
    return opened;
  }

  /** Opens the next round before it is asked for; of a loop that announces none it does nothing. */
  async openEarly(): Promise<void> {
    if (this.ahead > 0 && this.hasNext && this.opened === null) await this.open();
  }

  /** Cancels what it began and did not give: nobody else would open it, or wait for it. */
  async cancel(): Promise<void> {
    const begun = [...(this.opened === null ? [] : [this.opened]), ...this.announced.splice(0)];
    this.opened = null;
    for (const {id} of begun) {
      try {
        await cancelRound(this.caller, id, "its program's loop ended before it", CANCEL_MS);
      } catch (error) {
        if (!(error instanceof SheafError)) throw error;
        // Else it has ended by itself. A server that is gone keeps them until their announce_deadline.
        if (error.code !== "FAILED_PRECONDITION") return;
      }
    }
  }

  private async open(): Promise<RoundMessage> {
    // Before it opens: it may have its goal then, and what runs of it goes on in the next.
    if (this.buffered) await this.announce(this.ahead + 1);
    // So that workers prepare the first, too, while its broadcast is made and sent.
    if (this.numBegun === 0) await this.announce(this.ahead);
    this.number = this.numGiven + 1;
    if (this.announced.length > 0) {
      this.opened = await openRound(this.caller, this.announced[0]!, await current(this.broadcast), this.patches);
      this.announced.shift();
    } else {
      const options: RoundOptions = {...await this.currentOptions(), broadcast: await current(this.broadcast)};
      ++this.numBegun;
      this.opened = await createRound(this.caller, this.computation, options, this.population, this.patches);
    }
    await this.announce(this.ahead);
    return this.opened;
  }

  private async announce(ahead: number): Promise<void> {
    while (this.announced.length < ahead && this.numBegun < this.rounds) {
      this.number = this.numBegun + 1;
      const options = await this.currentOptions();
      options.announceDeadline ??= announceSeconds(options, ahead);
      if (this.buffered && this.newest !== "") {
        options.continues = this.newest;
      } else if (this.buffered && !options.continues) {
        // The first continues none, unless its program says so.
        delete options.staleness;
      }
      const announced = await announceRound(this.caller, this.computation, options, this.population);
      this.announced.push(announced);
      this.newest = announced.id;
      ++this.numBegun;
    }
  }

  private async currentOptions(): Promise<RoundOptions> {
    const now: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(this.options)) now[name] = await current(value);
    return now as unknown as RoundOptions;
  }
}

async function current<T>(value: Changing<T>): Promise<T> {
  return typeof value === "function" ? (value as () => T | Promise<T>)() : value;
}

/** It waits for the end of as many rounds as there are ahead of it, each of which may take until its own deadline. */
function announceSeconds({deadline = DEADLINE}: RoundOptions, ahead: number): number {
  return Math.min((ahead + 1) * checkSeconds(deadline, "deadline"), DEADLINE_MAX);
}
