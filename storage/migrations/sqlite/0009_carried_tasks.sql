-- Where a task came from that another round was running when this one took it over. Its row in `tasks` has the requirement
-- -1, which is "". Written once, by carry_over.
CREATE TABLE carried_tasks (
  task_key INTEGER PRIMARY KEY REFERENCES tasks,
  -- The task that it was, CANCELLED since; its round may have been deleted.
  from_key INTEGER NOT NULL UNIQUE CHECK (from_key < task_key),
  -- The task that its worker was given.
  origin_round TEXT NOT NULL,
  origin_index INTEGER NOT NULL CHECK (origin_index >= 0),
  -- Through how many rounds it came.
  staleness INTEGER NOT NULL CHECK (staleness >= 1)
);
