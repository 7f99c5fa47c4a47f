import { chatAddress } from "../../lib/route.ts";
import type { BackgroundTask } from "./conversation.ts";

const NAMES = { running: "running", waiting: "waits for you", completed: "completed", failed: "failed", canceled: "canceled" };

/** The subagents that work in the background: their status, their sessions, and a way to cancel them. */
export function BackgroundTasks({ tasks, onCancel }: { tasks: BackgroundTask[]; onCancel: (task: string) => void }) {
  if (tasks.length === 0) return null;
  const open = tasks.filter(isOpen);
  return (
    <details class="tasks background" open={open.length > 0}>
      <summary>Background tasks: {open.length} of {tasks.length} in progress</summary>
      <ul>
        {tasks.map((task) => (
          <li key={task.id}>
            <a href={chatAddress(task.session)}>{task.label ?? task.agent}</a>
            <span class="state">{NAMES[task.status]}{task.error && `: ${task.error}`}</span>
            {isOpen(task) && <button type="button" class="quiet" aria-label={`Cancel ${task.label ?? task.agent}`} onClick={() => onCancel(task.id)}>Cancel</button>}
          </li>
        ))}
      </ul>
    </details>
  );
}

function isOpen({ status }: BackgroundTask): boolean {
  return status === "running" || status === "waiting";
}
