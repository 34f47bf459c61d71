-- When the round stopped collecting: from then on its tasks in state 1 or 2 count as CANCELLED, since this time, and
-- those in state 2 have an attempt that ended so. Their rows stay as they are, however many they are. In rounds that
-- stopped under an older schema version there are none. Written by put_round.
ALTER TABLE rounds ADD COLUMN cancel_time INTEGER NOT NULL DEFAULT 0;
-- Written once, by create_round; empty in rounds of few tasks.
ALTER TABLE round_texts ADD COLUMN task_digests BLOB NOT NULL DEFAULT x'';
-- From here on deleted_rounds also has the keys of rounds that are yet to be created, while their tasks are stored over
-- several batches. What is left of one that never was is deleted like what is left of others.
