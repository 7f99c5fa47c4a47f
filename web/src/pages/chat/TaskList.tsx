import type { Task } from "@edge-harness/client";

const MARKS = { pending: "○", in_progress: "◐", completed: "●" };
const NAMES = { pending: "not started", in_progress: "in progress", completed: "completed" };

/** The agent's task list. */
export function TaskList({ tasks }: { tasks: Task[] }) {
  if (tasks.length === 0) return null;
  const done = tasks.filter(({ status }) => status === "completed").length;
  const current = tasks.find(({ status }) => status === "in_progress");
  return (
    <details class="tasks" open={done < tasks.length}>
      <summary>Tasks: {done} of {tasks.length}{current && ` · ${current.active_form ?? current.content}`}</summary>
      <ul>
        {tasks.map(({ id, content, status }) => (
          <li key={id} class={status}><span role="img" aria-label={NAMES[status]}>{MARKS[status]}</span> {content}</li>
        ))}
      </ul>
    </details>
  );
}
