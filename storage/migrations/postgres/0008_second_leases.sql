-- What the row of a LEASED task has no place for: a second lease of it, and the number of its first attempt where that is
-- not tasks.num_attempts. A row is there only while its task is LEASED, or was when its round stopped collecting. Written
-- by lease_again, and by every operation that renews or ends one of the two leases.
CREATE TABLE second_leases (
  task_key BIGINT PRIMARY KEY,
  -- Of the attempt in the row of the task.
  first_attempt INTEGER NOT NULL CHECK (first_attempt >= 1),
  -- 0: the second lease has ended, and the rest says nothing.
  attempt INTEGER NOT NULL CHECK (attempt = 0 OR attempt > first_attempt),
  worker BYTEA NOT NULL,
  lease_token BYTEA NOT NULL,
  poll_id BYTEA NOT NULL,
  lease_time BIGINT NOT NULL,
  expire_time BIGINT NOT NULL,
  attempt_deadline_time BIGINT NOT NULL,
  progress BIGINT NOT NULL
);
