-- Foundations, for one process with an embedded database. Same tables and checks as on PostgreSQL; times
-- are microseconds since the Unix epoch, ids are 16-byte blobs.

CREATE TABLE gapless_meta (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  min_binary INTEGER NOT NULL,
  epoch      BLOB NOT NULL
) STRICT;

CREATE TABLE submitter (
  submitter  TEXT PRIMARY KEY,
  settings   TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE submitter_lease (
  submitter     TEXT PRIMARY KEY,
  owner_node    TEXT NOT NULL,
  owner_process BLOB NOT NULL,
  fencing_token INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  idle          INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT submitter_lease_token_is_positive CHECK (fencing_token > 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE submitter_nonce_cursor (
  submitter       TEXT PRIMARY KEY,
  start_nonce     INTEGER,
  next_nonce      INTEGER,
  consumed        INTEGER,
  resolved        INTEGER,
  settled         INTEGER,
  in_flight_nonce INTEGER,
  in_flight_tx_id BLOB,
  condition       TEXT NOT NULL DEFAULT 'ok',
  conditions      TEXT NOT NULL DEFAULT '{}',
  version         INTEGER NOT NULL DEFAULT 0,
  fencing_token   INTEGER,
  updated_at      INTEGER NOT NULL,
  CONSTRAINT cursor_starts_as_a_whole CHECK (
    (start_nonce IS NULL) + (next_nonce IS NULL) + (consumed IS NULL) + (resolved IS NULL) + (settled IS NULL)
    IN (0, 5)),
  CONSTRAINT cursor_prefixes_in_order CHECK (start_nonce IS NULL OR (
    0 <= start_nonce AND start_nonce <= consumed AND consumed <= next_nonce
    AND start_nonce <= settled AND settled <= resolved AND resolved <= next_nonce)),
  CONSTRAINT cursor_in_flight_has_a_nonce CHECK (in_flight_tx_id IS NULL OR in_flight_nonce IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE managed_tx (
  ord                 INTEGER PRIMARY KEY AUTOINCREMENT,
  tx_id               BLOB NOT NULL UNIQUE,
  queue_ord           INTEGER,
  submitter           TEXT NOT NULL,
  scope               TEXT NOT NULL,
  request_id          TEXT NOT NULL,
  digest              BLOB NOT NULL,
  payload             TEXT NOT NULL,
  options             TEXT,
  metadata            TEXT,
  created_at          INTEGER NOT NULL,
  state               TEXT NOT NULL DEFAULT 'QUEUED',
  sub_state           TEXT,
  seq                 INTEGER NOT NULL DEFAULT 1,
  nonce               INTEGER,
  tx_hash             BLOB,
  mined_hash          BLOB,
  mined_as            TEXT,
  block_number        INTEGER,
  block_hash          BLOB,
  status              INTEGER,
  gas_used            INTEGER,
  effective_gas_price TEXT,
  contract_address    BLOB,
  mined_at            INTEGER,
  failure_code        TEXT,
  failure_reason      TEXT,
  wait_reason         TEXT,
  bound_at            INTEGER,
  ended_at            INTEGER,
  amended             TEXT,
  updated_at          INTEGER NOT NULL,
  fencing_token       INTEGER,
  event_rows          TEXT NOT NULL DEFAULT '[]',
  CONSTRAINT managed_tx_request UNIQUE (scope, request_id),
  CONSTRAINT managed_tx_request_id_length CHECK (octet_length(request_id) BETWEEN 1 AND 200),
  CONSTRAINT managed_tx_state_is_known CHECK (state IN
    ('QUEUED','ALLOCATED','TRACKING','STUCK','CONFIRMED','FAILED_FINAL','REJECTED','CANCELLED','EXPIRED')),
  CONSTRAINT managed_tx_queued_is_unbound CHECK ((state = 'QUEUED') = (queue_ord IS NOT NULL)),
  CONSTRAINT managed_tx_slot_fits_state CHECK (CASE state
    WHEN 'QUEUED' THEN nonce IS NULL AND tx_hash IS NULL
    WHEN 'REJECTED' THEN nonce IS NULL AND tx_hash IS NULL
    WHEN 'ALLOCATED' THEN nonce IS NOT NULL
    WHEN 'CANCELLED' THEN 1
    WHEN 'EXPIRED' THEN 1
    ELSE nonce IS NOT NULL AND tx_hash IS NOT NULL END),
  CONSTRAINT managed_tx_receipt_fits_state CHECK (CASE state
    WHEN 'QUEUED' THEN mined_hash IS NULL
    WHEN 'ALLOCATED' THEN mined_hash IS NULL
    WHEN 'REJECTED' THEN mined_hash IS NULL
    WHEN 'CONFIRMED' THEN mined_hash IS NOT NULL AND status AND mined_as IN ('payload', 'replacement')
    WHEN 'CANCELLED' THEN mined_as IS NULL OR mined_as NOT IN ('payload', 'replacement')
    WHEN 'EXPIRED' THEN mined_as IS NULL OR mined_as NOT IN ('payload', 'replacement')
    ELSE 1 END),
  CONSTRAINT managed_tx_receipt_is_whole CHECK (
    (mined_hash IS NULL) + (mined_as IS NULL) + (block_number IS NULL) + (block_hash IS NULL) + (status IS NULL)
    + (gas_used IS NULL) + (effective_gas_price IS NULL) + (mined_at IS NULL) IN (0, 8)),
  CONSTRAINT managed_tx_ends_once CHECK (
    (state IN ('CONFIRMED','FAILED_FINAL','REJECTED','CANCELLED','EXPIRED')) = (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX managed_tx_queue ON managed_tx (submitter, queue_ord) WHERE queue_ord IS NOT NULL;
CREATE INDEX managed_tx_order_of_submitter ON managed_tx (submitter, ord);

CREATE TABLE tx_attempt (
  submitter    TEXT NOT NULL,
  nonce        INTEGER NOT NULL,
  n            INTEGER NOT NULL,
  tx_id        BLOB,
  kind         TEXT NOT NULL,
  route        TEXT NOT NULL,
  hash         BLOB NOT NULL,
  raw          BLOB NOT NULL,
  fees         TEXT NOT NULL,
  stored_at    INTEGER NOT NULL,
  next_send_at INTEGER NOT NULL,
  resends      INTEGER NOT NULL DEFAULT 0,
  refusal_code TEXT,
  refusal_text TEXT,
  PRIMARY KEY (submitter, nonce, n),
  CONSTRAINT tx_attempt_hash UNIQUE (hash),
  CONSTRAINT tx_attempt_hash_length CHECK (length(hash) = 32),
  CONSTRAINT tx_attempt_has_bytes CHECK (length(raw) > 0),
  CONSTRAINT tx_attempt_belongs_or_fills CHECK (tx_id IS NOT NULL OR kind = 'placeholder')
) STRICT;

CREATE TABLE submitter_nonce_allocation (
  submitter    TEXT NOT NULL,
  nonce        INTEGER NOT NULL,
  status       TEXT NOT NULL,
  lock_owner   BLOB,
  locked_until INTEGER,
  tx_id        BLOB,
  used_hash    BLOB,
  foreign_hash BLOB,
  block_number INTEGER,
  block_hash   BLOB,
  PRIMARY KEY (submitter, nonce),
  CONSTRAINT allocation_status_is_known CHECK (status IN ('RESERVED','USED','RECYCLABLE','FOREIGN')),
  CONSTRAINT allocation_reserved_is_held CHECK (
    status <> 'RESERVED' OR (lock_owner IS NOT NULL AND locked_until IS NOT NULL)),
  CONSTRAINT allocation_used_has_a_hash CHECK (status <> 'USED' OR used_hash IS NOT NULL),
  CONSTRAINT allocation_foreign_has_an_exhibit CHECK (
    status <> 'FOREIGN' OR (block_number IS NOT NULL AND block_hash IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE lane_command (
  ord        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         BLOB NOT NULL UNIQUE,
  submitter  TEXT NOT NULL,
  tx_id      BLOB,
  verb       TEXT NOT NULL,
  args       TEXT NOT NULL,
  actor      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  done_at    INTEGER,
  outcome    TEXT,
  code       TEXT,
  result     TEXT,
  CONSTRAINT lane_command_ends_with_an_outcome CHECK ((done_at IS NULL) = (outcome IS NULL))
) STRICT;
CREATE INDEX lane_command_waiting ON lane_command (submitter, ord) WHERE done_at IS NULL;

-- One writer commits in order, so the row number is the order.
CREATE TABLE outbox_event (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  submitter TEXT NOT NULL,
  at        INTEGER NOT NULL,
  events    TEXT NOT NULL
) STRICT;
