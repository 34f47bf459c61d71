// What an operator can do to a task and to a round.
import type {TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import {requestId} from "../api/client.js";
import {client} from "../live/session.js";
import {Action} from "./basics.js";

/** Whether the server requeues it while its round is open. What was carried over runs where it is, and nowhere else. */
export function isRequeuable({state, origin}: TaskJson): boolean {
  return ["LEASED", "BURIED", "TASK_FAILED"].includes(state!) && !origin;
}

/** Nothing where the server would refuse it. `isOpen`: its round is. */
export function TaskAction({task, isOpen, done}: {task: TaskJson; isOpen: boolean; done: () => void}) {
  const question = task.state === "LEASED" ? `Take it away from ${task.worker}?` : undefined;
  return <Action name="Requeue" label={`Requeue ${task.id}`} question={question} isOffered={isOpen && isRequeuable(task)} act={async () => {
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
