// A round as it was when it was last looked at.
import {type Round as RoundMessage, RoundState} from "../../gen/sheaf/v1/round_pb.js";
import {fromDuration} from "../durations.js";

const TASK_STATES = ["queued", "leased", "succeeded", "failed", "cancelled", "buried"] as const;
const PHASES = ["wait", "download", "prepare", "compute", "upload", "fold", "commit"] as const;

export class RoundView {
  /** The protocol's sheaf.v1.Round. */
  message: RoundMessage;

  constructor(message: RoundMessage) {
    this.message = message;
  }

  /** "r-" and eight characters. */
  get id(): string {
    return this.message.id;
  }

  /** ANNOUNCED, COLLECTING, SEALING, SUCCEEDED, FAILED or CANCELLED. */
  get state(): string {
    return RoundState[this.message.state] ?? String(this.message.state);
  }

  /** Whether it SUCCEEDED, FAILED or was CANCELLED. */
  get hasEnded(): boolean {
    return [RoundState.SUCCEEDED, RoundState.FAILED, RoundState.CANCELLED].includes(this.message.state);
  }

  /** Nothing of it runs or waits, because its last tasks were given up: it would only wait for the deadline. */
  get isStuck(): boolean {
    const {queued, leased, buried} = this.tasks;
    return this.message.state === RoundState.COLLECTING && buried! > 0 && queued === 0 && leased === 0;
  }

  /** Why it failed or was cancelled, in a sentence. */
  get error(): string {
    return this.message.error;
  }

  /** Of the rounds of one program. */
  get job(): string {
    return this.message.spec?.job ?? "";
  }

  /** Name of the computation. */
  get computation(): string {
    return this.message.spec?.computation?.name ?? "";
  }

  /** How many tasks are in each state. */
  get tasks(): Record<(typeof TASK_STATES)[number], number> {
    const counts = this.message.tasks;
    return Object.fromEntries(TASK_STATES.map((state) => [state, Number(counts?.[state] ?? 0n)])) as never;
  }

  /** Contributions that complete it. */
  get goal(): number {
    const {spec} = this.message;
    const slots = spec?.work.case === "openSlots" ? spec.work.value.count : 0;
    return spec?.goal || slots || Object.values(this.tasks).reduce((all, each) => all + each, 0);
  }

  /** Accepted so far. */
  get numContributions(): number {
    return Number(this.message.numContributions);
  }

  /** That these combine. */
  get numClients(): number {
    return Number(this.message.numClients);
  }

  /** Of a round that continues another: how many contributions came through so many rounds; 0 for its own tasks. */
  get contributionsByStaleness(): Readonly<Record<number, number>> {
    return Object.fromEntries(
      Object.entries(this.message.contributionsByStaleness).map(([staleness, count]) => [staleness, Number(count)]));
  }

  /** Where its wall time went, in seconds. Once it has ended. */
  get phases(): Readonly<Record<(typeof PHASES)[number], number>> {
    const {phases} = this.message;
    return Object.fromEntries(PHASES.map((phase) => [phase, fromDuration(phases?.[phase]) / 1000])) as never;
  }

  toString(): string {
    return `<sheaf.Round ${this.id} of ${this.computation}: ${this.state}, ${this.numContributions} of ${this.goal}>`;
  }
}
