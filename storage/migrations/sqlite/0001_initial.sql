-- Times are nanoseconds since 1970 (9223372036854775807: never). States are the numbers of storage/records.h.
-- A task's key is its round's key * 2^32 + its index.

CREATE TABLE rounds (
  round_key INTEGER PRIMARY KEY,
  -- Written once, by create_round.
  id TEXT NOT NULL UNIQUE,
  population TEXT NOT NULL,
  job TEXT NOT NULL,
  request_id TEXT NOT NULL UNIQUE,
  create_time INTEGER NOT NULL,
  deadline_time INTEGER NOT NULL,
  broadcast_digest TEXT NOT NULL,
  -- Written by put_round, once per batch for each round that the batch changed.
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  version INTEGER NOT NULL CHECK (version >= 1),
  end_time INTEGER NOT NULL,
  num_queued INTEGER NOT NULL CHECK (num_queued >= 0),
  num_leased INTEGER NOT NULL CHECK (num_leased >= 0),
  num_succeeded INTEGER NOT NULL CHECK (num_succeeded >= 0),
  num_failed INTEGER NOT NULL CHECK (num_failed >= 0),
  num_cancelled INTEGER NOT NULL CHECK (num_cancelled >= 0),
  num_buried INTEGER NOT NULL CHECK (num_buried >= 0),
  num_failed_attempts INTEGER NOT NULL,
  num_lost_attempts INTEGER NOT NULL,
  num_contributions INTEGER NOT NULL,
  num_clients INTEGER NOT NULL,
  bytes_up INTEGER NOT NULL,
  checkpoint TEXT NOT NULL,
  checkpoint_sequence INTEGER NOT NULL CHECK (checkpoint_sequence BETWEEN 0 AND num_contributions),
  progress BLOB NOT NULL,
  error BLOB NOT NULL,
  -- Only a round that has stopped collecting is without work to hand out.
  CHECK (state <= 2 OR (num_queued = 0 AND num_leased = 0)),
  CHECK ((state >= 4) = (end_time < 9223372036854775807))
);
CREATE INDEX rounds_by_age ON rounds (create_time, id);
CREATE INDEX rounds_live ON rounds (create_time, id) WHERE state <= 3;
CREATE INDEX rounds_by_deadline ON rounds (deadline_time) WHERE state <= 2;

-- What is large and seldom changes: beside the row that changes with every batch.
CREATE TABLE round_texts (
  round_key INTEGER PRIMARY KEY REFERENCES rounds,
  -- Written once, by create_round.
  spec BLOB NOT NULL,
  -- Written once, by move_round to SUCCEEDED.
  aggregate BLOB NOT NULL
);

-- The distinct requirement texts of a round's tasks, in sorted order from 0. Written once, by create_round.
CREATE TABLE round_requirements (
  round_key INTEGER NOT NULL REFERENCES rounds,
  number INTEGER NOT NULL,
  requirement TEXT NOT NULL,
  PRIMARY KEY (round_key, number)
) WITHOUT ROWID;

CREATE TABLE tasks (
  task_key INTEGER PRIMARY KEY,
  -- Written once, by create_round.
  round_key INTEGER NOT NULL REFERENCES rounds,
  requirement INTEGER NOT NULL,
  -- Written by every operation that moves the task.
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  available_time INTEGER NOT NULL,
  -- available_time, while the task is QUEUED and waits out a backoff.
  delayed_until INTEGER CHECK (delayed_until IS NULL OR state = 1),
  end_time INTEGER NOT NULL,
  -- The holder, or the one whose contribution was accepted.
  worker TEXT CHECK ((worker IS NOT NULL) = (state IN (2, 3))),
  lease_token TEXT NOT NULL,
  -- Written by lease_tasks, cleared when the attempt ends; expire_time and progress also by renew_lease.
  poll_id TEXT NOT NULL,
  lease_time INTEGER NOT NULL,
  expire_time INTEGER CHECK ((expire_time IS NOT NULL) = (state = 2)),
  attempt_deadline_time INTEGER NOT NULL,
  progress INTEGER NOT NULL,
  -- Grows with every lease.
  num_attempts INTEGER NOT NULL,
  -- Written by end_attempt, cleared by requeue_task.
  num_failed INTEGER NOT NULL,
  num_lost INTEGER NOT NULL,
  last_error BLOB NOT NULL
);
CREATE INDEX tasks_queued ON tasks (round_key, requirement) WHERE state = 1;
CREATE INDEX tasks_delayed ON tasks (delayed_until) WHERE delayed_until IS NOT NULL;
CREATE INDEX tasks_by_expiry ON tasks (expire_time) WHERE expire_time IS NOT NULL;
CREATE INDEX tasks_by_worker ON tasks (worker, state, round_key) WHERE worker IS NOT NULL;

-- What the submitter wrote. No row if there is nothing. Written once, by create_round.
CREATE TABLE task_inputs (
  task_key INTEGER PRIMARY KEY REFERENCES tasks,
  payload BLOB NOT NULL,
  data_selector BLOB NOT NULL
);

-- Attempts that have ended; the running one lies in its task's row. Written when an attempt ends; outcome and error
-- again by forget_contributions.
CREATE TABLE attempts (
  task_key INTEGER NOT NULL REFERENCES tasks,
  number INTEGER NOT NULL CHECK (number >= 1),
  worker TEXT NOT NULL,
  lease_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  outcome INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 5),
  error BLOB NOT NULL,
  timings BLOB NOT NULL,
  bytes_up INTEGER NOT NULL,
  PRIMARY KEY (task_key, number)
) WITHOUT ROWID;

-- Written by record_contribution, deleted by forget_contributions.
CREATE TABLE contributions (
  round_key INTEGER NOT NULL REFERENCES rounds,
  sequence INTEGER NOT NULL CHECK (sequence >= 1),
  task_key INTEGER NOT NULL REFERENCES tasks,
  worker TEXT NOT NULL,
  lease_token TEXT NOT NULL,
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  num_clients INTEGER NOT NULL CHECK (num_clients >= 0),
  spool_segment INTEGER NOT NULL,
  spool_offset INTEGER NOT NULL,
  spool_length INTEGER NOT NULL,
  spool_crc INTEGER NOT NULL,
  accept_time INTEGER NOT NULL,
  PRIMARY KEY (round_key, sequence)
) WITHOUT ROWID;

-- Written by put_worker, once per batch for each worker that the batch changed.
CREATE TABLE workers (
  name TEXT NOT NULL,
  population TEXT NOT NULL,
  description BLOB NOT NULL,
  first_seen_time INTEGER NOT NULL,
  last_seen_time INTEGER NOT NULL,
  is_draining INTEGER NOT NULL CHECK (is_draining IN (0, 1)),
  num_leased INTEGER NOT NULL,
  num_succeeded INTEGER NOT NULL,
  num_failed INTEGER NOT NULL,
  num_lost INTEGER NOT NULL,
  PRIMARY KEY (name, population)
) WITHOUT ROWID;
