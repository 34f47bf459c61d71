-- Up to 0.1 the reason of a refusal quoted keys, positions and values of the contribution. From now on the kind of error
-- and the output are stored. What is overwritten here is zeroed on its page (PRAGMA secure_delete).
UPDATE tasks
  SET last_error = CAST('contribution rejected: by a server before 0.2; its worker was told why' AS BLOB)
  WHERE substr(last_error, 1, 23) = CAST('contribution rejected: ' AS BLOB);
UPDATE attempts
  SET error = CAST('contribution rejected: by a server before 0.2; its worker was told why' AS BLOB)
  WHERE substr(error, 1, 23) = CAST('contribution rejected: ' AS BLOB);
