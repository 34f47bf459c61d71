// Rounds as lists show them: as much of each as a row needs, because there may be ten thousand.
import type {RoundJson, RoundPhasesJson} from "../../gen/sheaf/v1/round_pb.js";
import type {TaskCountsJson} from "../../gen/sheaf/v1/task_pb.js";
import {CallError} from "../api/client.js";
import {at, int, seconds} from "../text/format.js";
import {client} from "./session.js";
import type {FetchPage} from "./use_pages.js";

export const PHASES = ["wait", "download", "prepare", "compute", "upload", "fold", "commit"] as const;
export const LIVE_STATES = ["ANNOUNCED", "COLLECTING", "SEALING"] as const;

/** Of these the server requeues tasks. */
export const OPEN_STATES = ["ANNOUNCED", "COLLECTING"] as const;

export interface RoundRow {
  id: string;
  state: string;
  job: string;
  computation: string;
  goal: number;
  contributions: number;
  clients: number;
  bytesUp: number;
  bytesDown: number;
  /** Milliseconds since 1970. */
  begin: number;
  /** NaN: it goes on. */
  end: number;
  /** Seconds, in the order of PHASES; null while it goes on. */
  phases: number[] | null;
  metrics: Record<string, number>;
}

export function isLive({state}: {state?: string}): boolean {
  return (LIVE_STATES as readonly string[]).includes(state ?? "");
}

export function isOpen({state}: {state?: string}): boolean {
  return (OPEN_STATES as readonly string[]).includes(state ?? "");
}

export function numTasks(tasks: TaskCountsJson = {}): number {
  return Object.values(tasks).reduce<number>((sum, value) => sum + int(value), 0);
}

export function phasesOf(phases: RoundPhasesJson | undefined): number[] | null {
  return phases === undefined ? null : PHASES.map((name) => seconds(phases[name]));
}

export function rowOf(round: RoundJson): RoundRow {
  return {
    id: round.id ?? "",
    state: round.state ?? "",
    job: round.spec?.job ?? "",
    computation: round.spec?.computation?.name ?? "",
    goal: round.spec?.goal || numTasks(round.tasks),
    contributions: int(round.numContributions),
    clients: int(round.numClients),
    bytesUp: int(round.bytesUp),
    bytesDown: int(round.bytesDown),
    begin: at(round.createTime),
    end: at(round.endTime),
    phases: phasesOf(round.phases),
    metrics: Object.fromEntries(Object.entries(round.metrics ?? {}).map(([name, value]) => [name, Number(value)])),
  };
}

export function fetchRounds(population: string, job: string, states: readonly string[]): FetchPage<RoundRow> {
  return async (pageToken, pageSize, signal) => {
    const {rounds = [], nextPageToken} = await client.call(
      "RoundService/ListRounds", {population, job, states: states as RoundJson["state"][] as never, pageToken, pageSize}, signal);
    return {items: rounds.map(rowOf), next: nextPageToken};
  };
}

// What a list asks for at a time of rounds that have ended since.
const FOLLOWED_MAX = 20;

/** Brings rounds that went on when they were listed up to date: all that still go on by one call, the others one by one. */
export function followRounds(population: string): (rows: RoundRow[], signal: AbortSignal) => Promise<RoundRow[]> {
  return async (rows, signal) => {
    if (!rows.some(isLive)) return rows;
    const {items} = await fetchRounds(population, "", LIVE_STATES)("", 1000, signal);
    const current = new Map(items.map((row) => [row.id, row]));
    const ended = rows.filter((row) => isLive(row) && !current.has(row.id)).slice(0, FOLLOWED_MAX);
    const forgotten = new Set<string>();
    for (const {id} of ended) {
      try {
        const {round} = await client.call("RoundService/GetRound", {round: id}, signal);
        if (round !== undefined) current.set(id, rowOf(round));
      } catch (error) {
        if (!(error instanceof CallError) || error.code !== "not_found") throw error;
        forgotten.add(id);
      }
    }
    return rows.filter((row) => !forgotten.has(row.id)).map((row) => current.get(row.id) ?? row);
  };
}
