// Client: the public methods of the server that served the page, by the Connect protocol in JSON.
//
//   const client = new Client();
//   client.token = "...";
//   const {rounds = []} = await client.call("RoundService/ListRounds", {population: "default"});
//
// The token is here and nowhere else: a page that is loaded again has forgotten it.
import type {
  DescribeQueueRequestJson, DescribeQueueResponseJson, DrainWorkerRequestJson, DrainWorkerResponseJson, ExplainRoundRequestJson,
  ExplainRoundResponseJson, GetServerInfoRequestJson, GetServerInfoResponseJson, GetTaskRequestJson, GetTaskResponseJson,
  ListTasksRequestJson, ListTasksResponseJson, ListWorkersRequestJson, ListWorkersResponseJson, RequeueTaskRequestJson,
  RequeueTaskResponseJson,
} from "../../gen/sheaf/v1/inspection_service_pb.js";
import type {
  CancelRoundRequestJson, CancelRoundResponseJson, GetRoundRequestJson, GetRoundResponseJson, ListRoundsRequestJson,
  ListRoundsResponseJson,
} from "../../gen/sheaf/v1/round_service_pb.js";

interface Methods {
  "InspectionService/DescribeQueue": [DescribeQueueRequestJson, DescribeQueueResponseJson];
  "InspectionService/DrainWorker": [DrainWorkerRequestJson, DrainWorkerResponseJson];
  "InspectionService/ExplainRound": [ExplainRoundRequestJson, ExplainRoundResponseJson];
  "InspectionService/GetServerInfo": [GetServerInfoRequestJson, GetServerInfoResponseJson];
  "InspectionService/GetTask": [GetTaskRequestJson, GetTaskResponseJson];
  "InspectionService/ListTasks": [ListTasksRequestJson, ListTasksResponseJson];
  "InspectionService/ListWorkers": [ListWorkersRequestJson, ListWorkersResponseJson];
  "InspectionService/RequeueTask": [RequeueTaskRequestJson, RequeueTaskResponseJson];
  "RoundService/CancelRound": [CancelRoundRequestJson, CancelRoundResponseJson];
  "RoundService/GetRound": [GetRoundRequestJson, GetRoundResponseJson];
  "RoundService/ListRounds": [ListRoundsRequestJson, ListRoundsResponseJson];
}

// Longer than the longest wait that a page asks for.
const CALL_MILLIS_MAX = 45_000;

/** A code of Connect ("not_found"), and a sentence for people. */
export class CallError extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
  }
}

export class Client {
  token = "";

  async call<M extends keyof Methods>(method: M, request: Methods[M][0], signal?: AbortSignal): Promise<Methods[M][1]> {
    const limit = AbortSignal.timeout(CALL_MILLIS_MAX);
    return this.ask(`sheaf.v1.${method}`, (answer) => answer.json(), {
      method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(request),
      signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
    }, signal);
  }

  /** What a round released. */
  aggregate(round: string): Promise<Blob> {
    return this.ask(`files/aggregates/${encodeURIComponent(round)}`, (answer) => answer.blob(), {headers: {}});
  }

  private async ask<Body>(path: string, read: (answer: Response) => Promise<Body>, options: RequestInit & {headers: Record<string, string>},
                          signal?: AbortSignal): Promise<Body> {
    let status = 0;
    let refusal: {code?: string; message?: string} = {};
    try {
      const answer = await fetch(path, {...options, headers: {...options.headers, ...(this.token && {authorization: `Bearer ${this.token}`})}});
      if (answer.ok) return await read(answer);
      status = answer.status;
      refusal = await answer.json();
    } catch (error) {
      signal?.throwIfAborted();
      if (status === 0) throw new CallError("unavailable", "The server does not answer.");
    }
    // What is no error of Connect's comes from something in between.
    throw new CallError(refusal.code ?? "unavailable", refusal.message || `Something before the server answered with the status ${status}.`);
  }
}

/** Names a call that changes something, so that it is done once. */
export function requestId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
