-- Who may do what. Written by create_token; revoke_time by revoke_token; deleted by delete_token.
CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  request_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  -- SHA-256 of the secret, or of the certificate's name, in hex. The secret itself is nowhere.
  hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
  certificate TEXT NOT NULL,
  -- Bits of the roles.
  roles INTEGER NOT NULL CHECK (roles > 0),
  creator TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  expire_time INTEGER NOT NULL,
  revoke_time INTEGER NOT NULL
) WITHOUT ROWID;

-- The populations where a token holds; a token without any holds everywhere. Written once, by create_token.
CREATE TABLE token_populations (
  token_id TEXT NOT NULL REFERENCES tokens ON DELETE CASCADE,
  population TEXT NOT NULL,
  PRIMARY KEY (token_id, population)
) WITHOUT ROWID;
