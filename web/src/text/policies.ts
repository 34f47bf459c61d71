// What a round does about attempts that take long, in sentences, and what it took over from the rounds before.
import type {RoundJson, StragglerPolicyJson} from "../../gen/sheaf/v1/round_pb.js";
import type {TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import {count, duration, int, metric, plural, seconds} from "./format.js";

/** Contributions whose tasks were carried through so many rounds. */
export interface Staleness {
  rounds: number;
  contributions: number;
  /** What each of them weighs, beside one of the round's own tasks. */
  weight: number;
}

/** Freshest first; none of a round that continues no other. */
export function stalenessOf({spec = {}, contributionsByStaleness = {}}: RoundJson): Staleness[] {
  const exponent = spec.staleness?.function === "POLYNOMIAL" ? Number(spec.staleness.exponent || 0.5) : 0;
  return Object.entries(contributionsByStaleness)
    .map(([rounds, contributions]) => ({rounds: Number(rounds), contributions: int(contributions), weight: (1 + Number(rounds)) ** -exponent}))
    .sort((a, b) => a.rounds - b.rounds);
}

/** As `sheaf round describe` has it, for one row: "of its own", "through 2 rounds". */
export function stalenessText(rounds: number): string {
  return rounds === 0 ? "of its own" : `through ${plural(rounds, "round")}`;
}

/** Of "r-7k2m9q4x/17": the round, and the index in it. */
export function placeOf(task: string): {round: string; index: string} {
  const slash = task.lastIndexOf("/");
  return {round: task.slice(0, Math.max(0, slash)), index: task.slice(slash + 1)};
}

/** How many of the tasks went on in which round. In one at the most: only one continues a round. */
export function carriedOn(tasks: TaskJson[]): {round: string; tasks: number} | null {
  const carried = tasks.filter(({carriedTo}) => carriedTo);
  return carried.length === 0 ? null : {round: placeOf(carried[0]!.carriedTo!).round, tasks: carried.length};
}

// Of shares close to 1, which `percent` would round up to it.
const exactPercent = (share: number): string => `${metric(share * 100)} %`;

/** What is done about stragglers, a sentence for each thing; none without a policy. */
export function stragglerTexts(policy: StragglerPolicyJson | undefined): string[] {
  if (policy === undefined) return [];
  const taken = `what ${exactPercent(Number(policy.quantile || 0.75))} of the others took`;
  const known = `known once ${count(policy.finishedMin || 3)} have succeeded`;
  const deadline = Number(policy.deadlineFactor || 0);
  const age = policy.ageMin === undefined ? 0.1 : seconds(policy.ageMin);
  return [
    policy.speculate && `A second attempt begins beside one that takes longer than ${metric(Number(policy.factor || 1.5))} times ${taken}, and than ` +
      `${duration(age)}, when no more than ${exactPercent(Number(policy.remainingShareMax || 0.25))} of the tasks still run (${known}).`,
    deadline > 0 && `An attempt is lost that takes longer than ${metric(deadline)} times ${taken} (${known}).`,
  ].filter((text) => text !== false && text !== undefined);
}
