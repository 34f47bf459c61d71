-- What the row of a LEASED task has no place for: a second lease of it, and the number of its first attempt where that is
-- not tasks.num_attempts. A row is there only while its task is LEASED, or was when its round stopped collecting. Written
-- by lease_again, and by every operation that renews or ends one of the two leases.
CREATE TABLE second_leases (
  task_key INTEGER PRIMARY KEY REFERENCES tasks,
  -- Of the attempt in the row of the task.
  first_attempt INTEGER NOT NULL CHECK (first_attempt >= 1),
  -- 0: the second lease has ended, and the rest says nothing.
  attempt INTEGER NOT NULL CHECK (attempt = 0 OR attempt > first_attempt),
  worker TEXT NOT NULL,
  lease_token TEXT NOT NULL,
  poll_id TEXT NOT NULL,
  lease_time INTEGER NOT NULL,
  expire_time INTEGER NOT NULL,
  attempt_deadline_time INTEGER NOT NULL,
  progress INTEGER NOT NULL
);
