-- Written by create_round (as rounds.progress) and save_checkpoint; read by forget_contributions.
ALTER TABLE round_texts ADD COLUMN checkpoint_progress BLOB NOT NULL DEFAULT x'';
-- SHA-256 of the released aggregate, in hex; written once, by move_round to SUCCEEDED. Empty also in rounds that
-- succeeded under schema version 1.
ALTER TABLE round_texts ADD COLUMN aggregate_digest TEXT NOT NULL DEFAULT '';

CREATE INDEX round_texts_by_aggregate ON round_texts (aggregate_digest) WHERE aggregate_digest <> '';
CREATE INDEX rounds_by_broadcast ON rounds (broadcast_digest, state) WHERE broadcast_digest <> '';
