// What an operator can do to a task and to a round.
import type {TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import {requestId} from "../api/client.js";
import {client} from "../live/session.js";
import {Action} from "./basics.js";

/** Nothing where there is nothing to requeue. */
export function TaskAction({task, done}: {task: TaskJson; done: () => void}) {
  if (!["LEASED", "BURIED", "TASK_FAILED"].includes(task.state!)) return null;
  return <Action name="Requeue" label={`Requeue ${task.id}`} question={task.state === "LEASED" ? `Take it away from ${task.worker}?` : undefined} act={async () => {
    await client.call("InspectionService/RequeueTask", {requestId: requestId(), task: task.id});
    done();
  }}/>;
}

export function CancelAction({round, done}: {round: string; done: () => void}) {
  return <Action name="Cancel" label={`Cancel ${round}`} question={`Cancel ${round}, without a result?`} act={async () => {
    await client.call("RoundService/CancelRound", {requestId: requestId(), round, reason: "cancelled in the dashboard"});
    done();
  }}/>;
}
