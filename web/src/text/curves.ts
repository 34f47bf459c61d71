// What rounds measured, as curves; and the scale beside one.
import type {RoundRow} from "../live/rounds.js";

// More points than a line of this size can show.
const POINTS_MAX = 100;
const TICKS = 4;

/** By job, newest first, the values of each metric, oldest first. Jobs that measured nothing are not among them. */
export function curvesOf(rounds: RoundRow[]): Map<string, Map<string, number[]>> {
  const jobs = new Map<string, Map<string, number[]>>();
  for (const {job, metrics} of rounds) {
    if (!job || Object.keys(metrics).length === 0) continue;
    const curves = jobs.get(job) ?? new Map<string, number[]>();
    jobs.set(job, curves);
    for (const [name, value] of Object.entries(metrics)) {
      const curve = curves.get(name) ?? [];
      curves.set(name, curve);
      if (curve.length < POINTS_MAX) curve.unshift(value);
    }
  }
  return jobs;
}

/** Round numbers from below `low` to above `high`. */
export function ticksBetween(low: number, high: number): number[] {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / TICKS));
  const step = [1, 2, 5, 10].find((factor) => factor * power * TICKS >= span)! * power;
  const ticks = [];
  for (let i = Math.floor(low / step); i <= Math.ceil(high / step); ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks.length > 1 ? ticks : [ticks[0]! - step, ticks[0]!, ticks[0]! + step];
}
