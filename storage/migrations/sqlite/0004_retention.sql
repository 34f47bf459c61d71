CREATE INDEX rounds_by_end ON rounds (end_time, create_time, id) WHERE state >= 4;

-- Keys of rounds that were deleted and whose tasks are still being deleted, some in each batch. Written by
-- delete_round; read by create_round, which gives no such key again.
CREATE TABLE deleted_rounds (round_key INTEGER PRIMARY KEY);
