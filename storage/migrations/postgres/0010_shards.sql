-- A database divided into shards, each with its own populations and owner: the one that was there before is the first, and
-- each other one is a schema with tables of its own, like these (storage/postgres/postgres_shards.h). What follows is used
-- in the first shard only.

-- Where the rounds of a population are, for good: in its first shard, 0, or in another one. Written once, by place.
CREATE TABLE populations (
  name BYTEA PRIMARY KEY,
  shard INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 15),
  -- Of placement, when it was placed.
  revision BIGINT NOT NULL UNIQUE
);
CREATE INDEX populations_by_shard ON populations (shard, name);

-- One row, which each placing locks and raises: whoever has seen a revision has seen all before it.
CREATE TABLE placement (
  revision BIGINT NOT NULL
);
INSERT INTO placement VALUES (0);

-- Who is older than shards has rounds in the first, and stays there.
CREATE INDEX rounds_by_population ON rounds (population);

-- The process of the server that takes shards, and not the first alone. 0: none, as those before 0.2.
ALTER TABLE servers ADD COLUMN shards_epoch BIGINT NOT NULL DEFAULT 0;

-- Servers that were taken out of service, by name. One that ends is in `servers` no more, and here until it is taken back.
CREATE TABLE draining_servers (
  id BYTEA PRIMARY KEY
);
