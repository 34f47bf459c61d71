-- The schema that SQLite's steps up to 7 have made, as PostgreSQL keeps it. Times are nanoseconds since 1970
-- (9223372036854775807: never). States are the numbers of storage/records.h. A task's key is its round's key * 2^32 + its
-- index.
--
-- Text is BYTEA, too: it may hold any character, and its order is that of its bytes, whatever the encoding and collation
-- of the database. `SET bytea_output = 'escape'` shows it to people.
--
-- Rows that change with every lease are updated in place (HOT): their pages have room, and no index has a column that
-- a lease changes, not even in its condition. There are no foreign keys, which each row would have to look up.

CREATE TABLE rounds (
  round_key BIGINT PRIMARY KEY,
  -- Written once, by create_round.
  id BYTEA NOT NULL UNIQUE,
  population BYTEA NOT NULL,
  job BYTEA NOT NULL,
  request_id BYTEA NOT NULL UNIQUE,
  create_time BIGINT NOT NULL,
  deadline_time BIGINT NOT NULL,
  broadcast_digest BYTEA NOT NULL,
  -- Written by put_rounds, once per batch for each round that the batch changed.
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  version BIGINT NOT NULL CHECK (version >= 1),
  end_time BIGINT NOT NULL,
  num_queued BIGINT NOT NULL CHECK (num_queued >= 0),
  num_leased BIGINT NOT NULL CHECK (num_leased >= 0),
  num_succeeded BIGINT NOT NULL CHECK (num_succeeded >= 0),
  num_failed BIGINT NOT NULL CHECK (num_failed >= 0),
  num_cancelled BIGINT NOT NULL CHECK (num_cancelled >= 0),
  num_buried BIGINT NOT NULL CHECK (num_buried >= 0),
  num_failed_attempts BIGINT NOT NULL,
  num_lost_attempts BIGINT NOT NULL,
  num_contributions BIGINT NOT NULL,
  num_clients BIGINT NOT NULL,
  bytes_up BIGINT NOT NULL,
  checkpoint BYTEA NOT NULL,
  checkpoint_sequence BIGINT NOT NULL CHECK (checkpoint_sequence BETWEEN 0 AND num_contributions),
  progress BYTEA NOT NULL,
  error BYTEA NOT NULL,
  -- When the round stopped collecting: from then on its tasks in state 1 or 2 count as CANCELLED, since this time, and
  -- those in state 2 have an attempt that ended so.
  cancel_time BIGINT NOT NULL DEFAULT 0,
  -- Only a round that has stopped collecting is without work to hand out.
  CHECK (state <= 2 OR (num_queued = 0 AND num_leased = 0)),
  CHECK ((state >= 4) = (end_time < 9223372036854775807))
) WITH (fillfactor = 50);
CREATE INDEX rounds_by_age ON rounds (create_time, id);
CREATE INDEX rounds_live ON rounds (create_time, id) WHERE state <= 3;
CREATE INDEX rounds_by_deadline ON rounds (deadline_time) WHERE state <= 2;
CREATE INDEX rounds_by_end ON rounds (end_time, create_time, id) WHERE state >= 4;
CREATE INDEX rounds_by_broadcast ON rounds (broadcast_digest, state) WHERE broadcast_digest <> '';

-- What is large and seldom changes: beside the row that changes with every batch.
CREATE TABLE round_texts (
  round_key BIGINT PRIMARY KEY,
  -- Written once, by create_round.
  spec BYTEA NOT NULL,
  -- Written once, by create_round; empty in rounds of few tasks.
  task_digests BYTEA NOT NULL,
  -- Written once, by move_round to SUCCEEDED; the digest is the SHA-256 of the released aggregate, in hex.
  aggregate BYTEA NOT NULL,
  aggregate_digest BYTEA NOT NULL DEFAULT '',
  -- Written by create_round (as rounds.progress) and save_checkpoint; read by forget_contributions.
  checkpoint_progress BYTEA NOT NULL
);
CREATE INDEX round_texts_by_aggregate ON round_texts (aggregate_digest) WHERE aggregate_digest <> '';

-- The distinct requirement texts of a round's tasks, in sorted order from 0. Written once, by create_round.
CREATE TABLE round_requirements (
  round_key BIGINT NOT NULL,
  number BIGINT NOT NULL,
  requirement BYTEA NOT NULL,
  PRIMARY KEY (round_key, number)
);

CREATE TABLE tasks (
  task_key BIGINT PRIMARY KEY,
  -- Written once, by create_round.
  round_key BIGINT NOT NULL,
  requirement BIGINT NOT NULL,
  -- Written by every operation that moves the task.
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  num_attempts INTEGER NOT NULL DEFAULT 0,
  num_failed INTEGER NOT NULL DEFAULT 0,
  num_lost INTEGER NOT NULL DEFAULT 0,
  available_time BIGINT NOT NULL,
  -- available_time, while the task is QUEUED and waits out a backoff.
  delayed_until BIGINT CHECK (delayed_until IS NULL OR state = 1),
  end_time BIGINT NOT NULL DEFAULT 9223372036854775807,
  -- Written by lease_tasks, cleared when the attempt ends; expire_time and progress also by renew_lease.
  lease_time BIGINT NOT NULL DEFAULT 0,
  expire_time BIGINT CHECK ((expire_time IS NOT NULL) = (state = 2)),
  attempt_deadline_time BIGINT NOT NULL DEFAULT 0,
  progress BIGINT NOT NULL DEFAULT 0,
  poll_id BYTEA NOT NULL DEFAULT '',
  -- The holder, or the one whose contribution was accepted.
  worker BYTEA CHECK ((worker IS NOT NULL) = (state IN (2, 3))),
  lease_token BYTEA NOT NULL DEFAULT '',
  last_error BYTEA NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX tasks_delayed ON tasks (delayed_until) WHERE delayed_until IS NOT NULL;

-- What the submitter wrote. No row if there is nothing. Written once, by create_round.
CREATE TABLE task_inputs (
  task_key BIGINT PRIMARY KEY,
  payload BYTEA NOT NULL,
  data_selector BYTEA NOT NULL
);

-- Attempts that have ended; the running one lies in its task's row. Written when an attempt ends; outcome and error
-- again by forget_contributions.
CREATE TABLE attempts (
  task_key BIGINT NOT NULL,
  number INTEGER NOT NULL CHECK (number >= 1),
  outcome INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 5),
  lease_time BIGINT NOT NULL,
  end_time BIGINT NOT NULL,
  bytes_up BIGINT NOT NULL,
  worker BYTEA NOT NULL,
  error BYTEA NOT NULL,
  timings BYTEA NOT NULL,
  PRIMARY KEY (task_key, number)
);

-- Written by record_contribution, deleted by forget_contributions.
CREATE TABLE contributions (
  round_key BIGINT NOT NULL,
  sequence BIGINT NOT NULL CHECK (sequence >= 1),
  task_key BIGINT NOT NULL,
  size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
  num_clients BIGINT NOT NULL CHECK (num_clients >= 0),
  spool_segment BIGINT NOT NULL,
  spool_offset BIGINT NOT NULL,
  spool_length BIGINT NOT NULL,
  spool_crc BIGINT NOT NULL,
  accept_time BIGINT NOT NULL,
  worker BYTEA NOT NULL,
  lease_token BYTEA NOT NULL,
  digest BYTEA NOT NULL,
  PRIMARY KEY (round_key, sequence)
);

-- Written by put_workers, once per batch for each worker that the batch changed.
CREATE TABLE workers (
  name BYTEA NOT NULL,
  population BYTEA NOT NULL,
  description BYTEA NOT NULL,
  first_seen_time BIGINT NOT NULL,
  last_seen_time BIGINT NOT NULL,
  is_draining INTEGER NOT NULL CHECK (is_draining IN (0, 1)),
  num_leased BIGINT NOT NULL,
  num_succeeded BIGINT NOT NULL,
  num_failed BIGINT NOT NULL,
  num_lost BIGINT NOT NULL
) WITH (fillfactor = 50);
-- Each once; add_workers sees to that. A unique index would look at all versions of a worker whenever one of them goes to
-- another page, and while a transaction of somebody's stays open there are very many (docs/adr/0045).
CREATE INDEX workers_by_name ON workers (name, population);

-- Keys of rounds that were deleted and whose tasks are still being deleted, some in each batch; and of rounds that are yet
-- to be created, while their tasks are stored over several batches.
CREATE TABLE deleted_rounds (round_key BIGINT PRIMARY KEY);

-- Who may do what. Written by create_token; revoke_time by revoke_token; deleted by delete_token.
CREATE TABLE tokens (
  id BYTEA PRIMARY KEY,
  request_id BYTEA NOT NULL UNIQUE,
  name BYTEA NOT NULL,
  -- SHA-256 of the secret, or of the certificate's name, in hex. The secret itself is nowhere.
  hash BYTEA NOT NULL UNIQUE CHECK (length(hash) = 64),
  certificate BYTEA NOT NULL,
  -- Bits of the roles.
  roles BIGINT NOT NULL CHECK (roles > 0),
  creator BYTEA NOT NULL,
  create_time BIGINT NOT NULL,
  expire_time BIGINT NOT NULL,
  revoke_time BIGINT NOT NULL
);

-- The populations where a token holds; a token without any holds everywhere. Written once, by create_token.
CREATE TABLE token_populations (
  token_id BYTEA NOT NULL,
  population BYTEA NOT NULL,
  PRIMARY KEY (token_id, population)
);

-- Bytes that are too large for a row of their own, in pieces (storage/postgres/postgres_contents.h). What they are is said
-- by the rows that have their key: those of blobs, uploads, spool_uploads and checkpoints.
CREATE SEQUENCE content_keys;
CREATE TABLE content_pieces (
  content_key BIGINT NOT NULL,
  -- Of the piece's first byte.
  place BIGINT NOT NULL CHECK (place >= 0),
  bytes BYTEA NOT NULL,
  PRIMARY KEY (content_key, place)
);
-- Not compressed: tensors hardly shrink, and parts of them are read.
ALTER TABLE content_pieces ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Broadcasts and aggregates, by the SHA-256 of their bytes, in hex.
CREATE TABLE blobs (
  digest BYTEA PRIMARY KEY,
  size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
  content_key BIGINT NOT NULL UNIQUE
);

CREATE TABLE uploads (
  id BYTEA PRIMARY KEY,
  -- As announced.
  size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
  digest BYTEA NOT NULL,
  content_key BIGINT NOT NULL UNIQUE,
  committed_bytes BIGINT NOT NULL DEFAULT 0 CHECK (committed_bytes BETWEEN 0 AND size_bytes),
  is_finished INTEGER NOT NULL DEFAULT 0 CHECK (is_finished IN (0, 1)),
  -- Grows whenever somebody starts it again, writes to it or finishes it.
  num_uses BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Per round the accepted contributions that no checkpoint covers yet: those of one batch in a row, as each came.
CREATE TABLE spool_pieces (
  round_id BYTEA NOT NULL,
  segment BIGINT NOT NULL CHECK (segment >= 1),
  place BIGINT NOT NULL CHECK (place >= 0),
  bytes BYTEA NOT NULL,
  PRIMARY KEY (round_id, segment, place)
);
ALTER TABLE spool_pieces ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Segments that were uploads.
CREATE TABLE spool_uploads (
  round_id BYTEA NOT NULL,
  segment BIGINT NOT NULL CHECK (segment >= 1),
  size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
  digest BYTEA NOT NULL,
  content_key BIGINT NOT NULL,
  PRIMARY KEY (round_id, segment)
);
CREATE INDEX spool_uploads_by_content ON spool_uploads (content_key);

-- Merged states of rounds, by the names that rounds.checkpoint has.
CREATE TABLE checkpoints (
  round_id BYTEA NOT NULL,
  name BYTEA NOT NULL,
  size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
  digest BYTEA NOT NULL,
  content_key BIGINT NOT NULL UNIQUE,
  PRIMARY KEY (round_id, name)
);

-- The servers on this database. Written by join, at the start of each process, which has an epoch of its own; the time by
-- beat, too, from the database's clock. Deleted by leave.
CREATE TABLE servers (
  id BYTEA PRIMARY KEY,
  epoch BIGINT NOT NULL,
  heartbeat_time TIMESTAMPTZ NOT NULL,
  start_time TIMESTAMPTZ NOT NULL,
  -- Its software, and where callers reach it; for people.
  version BYTEA NOT NULL,
  address BYTEA NOT NULL,
  -- Where other servers reach it with calls that they forward (empty: nowhere), the certificate that it shows there, in
  -- PEM, and what it wants to be shown.
  peer_address BYTEA NOT NULL,
  peer_certificate BYTEA NOT NULL,
  peer_secret BYTEA NOT NULL
) WITH (fillfactor = 10);

-- Who may write what: one row, of population '', which is all of them. Written by take; epoch also by take_again, and
-- batch and time by each commit (docs/adr/0032).
CREATE TABLE owners (
  population BYTEA PRIMARY KEY,
  server BYTEA NOT NULL,
  server_epoch BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  batch BIGINT NOT NULL,
  take_time TIMESTAMPTZ NOT NULL,
  heartbeat_time TIMESTAMPTZ NOT NULL,
  -- The connection that has the right; ended if it stands still in the middle of a commit.
  backend_pid INTEGER NOT NULL,
  backend_start TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 10);

-- The copy of a directory into this database that has not ended (storage/postgres/store_copy.h): servers refuse the database
-- as long as there is a row. Written by begin_copy, and deleted in the transaction that has the whole store.
CREATE TABLE unfinished_copies (
  directory BYTEA PRIMARY KEY,
  begin_time TIMESTAMPTZ NOT NULL
);
