-- Foundations. Expand/contract: later migrations add, and drop only what no supported binary uses.

-- Keys are compared byte by byte (COLLATE "C"): cheaper, and the same order in every locale.

-- The timeline being written. The control file shows it only after the checkpoint that follows a promotion.
CREATE FUNCTION gapless_timeline() RETURNS int LANGUAGE sql VOLATILE AS
  $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int $$;

-- What this schema demands of a binary, and what database it believes it lives in.
CREATE TABLE gapless_meta (
  one               boolean PRIMARY KEY DEFAULT true,
  min_binary        int NOT NULL,
  epoch             uuid NOT NULL DEFAULT gen_random_uuid(),
  system_identifier bigint NOT NULL,
  timeline          int NOT NULL,
  CONSTRAINT gapless_meta_is_one_row CHECK (one)
);
INSERT INTO gapless_meta (min_binary, system_identifier, timeline)
  SELECT 1, s.system_identifier, gapless_timeline() FROM pg_control_system() s;

-- The one clock. now() stands still inside a transaction; this does not.
CREATE FUNCTION gapless_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

-- A batch that touched other rows than it planned rolls back as a whole.
CREATE FUNCTION gapless_expect(what text, touched bigint, planned bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF touched IS DISTINCT FROM planned THEN
    RAISE EXCEPTION '%: % rows touched, % planned', what, touched, planned USING ERRCODE = 'GL001';
  END IF;
END $$;

-- Where rows are many, a submitter is a number: its name is longer than the rest of such a row's keys.
CREATE SEQUENCE submitter_number AS int;
CREATE TABLE submitter (
  submitter  text COLLATE "C" PRIMARY KEY,
  number     int NOT NULL DEFAULT nextval('submitter_number'),
  settings   json NOT NULL,
  created_at timestamptz NOT NULL DEFAULT gapless_now(),
  CONSTRAINT submitter_has_one_number UNIQUE (number)
);

-- UNIQUE (submitter, fencing_token) makes the token a key column: an UPDATE that raises it then needs
-- the row's full lock and waits for every writer that holds it FOR KEY SHARE.
CREATE TABLE submitter_lease (
  submitter     text COLLATE "C" PRIMARY KEY,
  owner_node    text NOT NULL,
  owner_process uuid NOT NULL,
  fencing_token bigint NOT NULL,
  expires_at    timestamptz NOT NULL,
  idle          boolean NOT NULL DEFAULT false,
  CONSTRAINT submitter_lease_token_is_a_key UNIQUE (submitter, fencing_token),
  CONSTRAINT submitter_lease_token_is_positive CHECK (fencing_token > 0)
) WITH (fillfactor = 50);
-- Lanes somebody works on or died on: all that a search for orphans needs to read.
CREATE INDEX submitter_lease_busy ON submitter_lease (submitter) WHERE NOT idle;

CREATE TABLE submitter_nonce_cursor (
  submitter       text COLLATE "C" PRIMARY KEY,
  start_nonce     bigint,
  next_nonce      bigint,
  consumed        bigint,
  resolved        bigint,
  settled         bigint,
  in_flight_nonce bigint,
  in_flight_tx_id uuid,
  condition       text NOT NULL DEFAULT 'ok',
  conditions      json NOT NULL DEFAULT '{}',
  version         bigint NOT NULL DEFAULT 0,
  fencing_token   bigint,
  updated_at      timestamptz NOT NULL DEFAULT gapless_now(),
  CONSTRAINT cursor_starts_as_a_whole CHECK (
    num_nulls(start_nonce, next_nonce, consumed, resolved, settled) IN (0, 5)),
  CONSTRAINT cursor_prefixes_in_order CHECK (
    0 <= start_nonce AND start_nonce <= consumed AND consumed <= next_nonce
    AND start_nonce <= settled AND settled <= resolved AND resolved <= next_nonce),
  CONSTRAINT cursor_in_flight_has_a_nonce CHECK (in_flight_tx_id IS NULL OR in_flight_nonce IS NOT NULL)
) WITH (fillfactor = 50);

CREATE SEQUENCE managed_tx_order;

-- What was accepted, and never changes. JSON is kept as text where the write path is hot: the type would parse it at
-- every write.
CREATE TABLE tx_request (
  tx_id            uuid NOT NULL,
  ord              bigint NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT gapless_now(),
  submitter_number int NOT NULL,
  scope            text COLLATE "C" NOT NULL,
  request_id       text COLLATE "C" NOT NULL,
  digest           bytea NOT NULL,
  payload          text NOT NULL,
  options          text,
  metadata         text,
  CONSTRAINT tx_request_pkey PRIMARY KEY (tx_id),
  CONSTRAINT tx_request_once UNIQUE (request_id, scope),
  CONSTRAINT tx_request_id_length CHECK (octet_length(request_id) BETWEEN 1 AND 200)
);
CREATE INDEX tx_request_order_of_submitter ON tx_request (submitter_number, ord);
CREATE INDEX tx_request_by_order ON tx_request (ord);

-- What the lane made of it: a row from the first write on, so a transaction without one is QUEUED as it was accepted.
-- No changing column stands in any index, and most of a page is left free: a row's updates stay on its page (HOT), touch
-- no index, and copy nothing of the request.
CREATE TABLE tx_facts (
  tx_id               uuid NOT NULL,
  ord                 bigint NOT NULL,
  seq                 bigint NOT NULL,
  updated_at          timestamptz NOT NULL DEFAULT gapless_now(),
  submitter_number    int NOT NULL,
  state               text NOT NULL,
  sub_state           text,
  nonce               bigint,
  tx_hash             bytea,
  mined_hash          bytea,
  mined_as            text,
  block_number        bigint,
  block_hash          bytea,
  status              boolean,
  gas_used            bigint,
  effective_gas_price numeric(39),
  contract_address    bytea,
  mined_at            timestamptz,
  failure_code        text,
  failure_reason      text,
  wait_reason         text,
  bound_at            timestamptz,
  ended_at            timestamptz,
  amended             text,
  fencing_token       bigint NOT NULL,
  event_rows          bytea NOT NULL, -- ids of outbox_event, eight bytes each
  CONSTRAINT tx_facts_pkey PRIMARY KEY (tx_id),
  CONSTRAINT tx_facts_fit_state CHECK (CASE state
    WHEN 'TRACKING' THEN nonce IS NOT NULL AND tx_hash IS NOT NULL AND ended_at IS NULL
    WHEN 'CONFIRMED' THEN nonce IS NOT NULL AND tx_hash IS NOT NULL AND ended_at IS NOT NULL
      AND mined_hash IS NOT NULL AND status AND mined_as IN ('payload', 'replacement')
    WHEN 'QUEUED' THEN nonce IS NULL AND tx_hash IS NULL AND mined_hash IS NULL AND ended_at IS NULL
    WHEN 'ALLOCATED' THEN nonce IS NOT NULL AND mined_hash IS NULL AND ended_at IS NULL
    WHEN 'STUCK' THEN nonce IS NOT NULL AND tx_hash IS NOT NULL AND ended_at IS NULL
    WHEN 'FAILED_FINAL' THEN nonce IS NOT NULL AND tx_hash IS NOT NULL AND ended_at IS NOT NULL
    WHEN 'REJECTED' THEN nonce IS NULL AND tx_hash IS NULL AND mined_hash IS NULL AND ended_at IS NOT NULL
    WHEN 'CANCELLED' THEN (mined_as IN ('payload', 'replacement')) IS NOT TRUE AND ended_at IS NOT NULL
    WHEN 'EXPIRED' THEN (mined_as IN ('payload', 'replacement')) IS NOT TRUE AND ended_at IS NOT NULL
    ELSE false END),
  CONSTRAINT tx_facts_receipt_is_whole CHECK (num_nulls(
    mined_hash, mined_as, block_number, block_hash, status, gas_used, effective_gas_price, mined_at) IN (0, 8))
) WITH (fillfactor = 27);

-- A transaction as a whole, for whoever reads. The name is looked up row by row: as a join it could lead a plan.
CREATE VIEW managed_tx AS
SELECT r.tx_id, r.ord, r.submitter_number,
  (SELECT s.submitter FROM submitter s WHERE s.number = r.submitter_number) AS submitter,
  r.scope, r.request_id, r.digest, r.payload, r.options, r.metadata, r.created_at,
  coalesce(f.updated_at, r.created_at) AS updated_at, coalesce(f.state, 'QUEUED') AS state, coalesce(f.seq, 1) AS seq,
  f.sub_state, f.nonce, f.tx_hash, f.mined_hash, f.mined_as, f.block_number, f.block_hash, f.status, f.gas_used,
  f.effective_gas_price, f.contract_address, f.mined_at, f.failure_code, f.failure_reason, f.wait_reason, f.bound_at,
  f.ended_at, f.amended, f.fencing_token, f.event_rows
FROM tx_request r LEFT JOIN tx_facts f ON f.tx_id = r.tx_id;

-- What is QUEUED, and nothing else: rows leave it in the write that binds (or ends) them.
CREATE TABLE tx_queue (
  submitter_number int NOT NULL,
  ord              bigint NOT NULL,
  tx_id            uuid NOT NULL,
  CONSTRAINT tx_queue_pkey PRIMARY KEY (submitter_number, ord)
);

CREATE TABLE tx_attempt (
  nonce            bigint NOT NULL,
  stored_at        timestamptz NOT NULL DEFAULT gapless_now(),
  next_send_at     timestamptz NOT NULL,
  submitter_number int NOT NULL,
  n                int NOT NULL,
  resends          int NOT NULL DEFAULT 0,
  tx_id            uuid,
  kind             text NOT NULL,
  route            text NOT NULL,
  hash             bytea NOT NULL,
  raw              bytea NOT NULL,
  fees             text NOT NULL,
  refusal_code     text,
  refusal_text     text,
  CONSTRAINT tx_attempt_pkey PRIMARY KEY (submitter_number, nonce, n),
  CONSTRAINT tx_attempt_hash UNIQUE (hash),
  CONSTRAINT tx_attempt_hash_length CHECK (octet_length(hash) = 32),
  CONSTRAINT tx_attempt_has_bytes CHECK (octet_length(raw) > 0),
  CONSTRAINT tx_attempt_belongs_or_fills CHECK (tx_id IS NOT NULL OR kind = 'placeholder')
) WITH (fillfactor = 90);

-- Only slots that need a row of their own: reserved outside, recycled, or used by somebody else.
CREATE TABLE submitter_nonce_allocation (
  submitter    text COLLATE "C" NOT NULL,
  nonce        bigint NOT NULL,
  status       text NOT NULL,
  lock_owner   uuid,
  locked_until timestamptz,
  tx_id        uuid,
  used_hash    bytea,
  foreign_hash bytea,
  block_number bigint,
  block_hash   bytea,
  PRIMARY KEY (submitter, nonce),
  CONSTRAINT allocation_status_is_known CHECK (status IN ('RESERVED','USED','RECYCLABLE','FOREIGN')),
  CONSTRAINT allocation_reserved_is_held CHECK (
    status <> 'RESERVED' OR (lock_owner IS NOT NULL AND locked_until IS NOT NULL)),
  CONSTRAINT allocation_used_has_a_hash CHECK (status <> 'USED' OR used_hash IS NOT NULL),
  CONSTRAINT allocation_foreign_has_an_exhibit CHECK (
    status <> 'FOREIGN' OR (block_number IS NOT NULL AND block_hash IS NOT NULL))
);

CREATE SEQUENCE lane_command_order;
CREATE TABLE lane_command (
  id         uuid PRIMARY KEY,
  ord        bigint NOT NULL DEFAULT nextval('lane_command_order'),
  submitter  text COLLATE "C" NOT NULL,
  tx_id      uuid,
  verb       text NOT NULL,
  args       json NOT NULL,
  actor      text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT gapless_now(),
  done_at    timestamptz,
  outcome    text,
  code       text,
  result     text,
  CONSTRAINT lane_command_ends_with_an_outcome CHECK ((done_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX lane_command_waiting ON lane_command (submitter, ord) WHERE done_at IS NULL;

-- One row per commit and lane. Readers order by (xid, id) below the oldest running transaction, since
-- a row number drawn early may commit late.
CREATE SEQUENCE outbox_event_id;
CREATE TABLE outbox_event (
  id        bigint PRIMARY KEY DEFAULT nextval('outbox_event_id'),
  xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
  submitter text COLLATE "C" NOT NULL,
  at        timestamptz NOT NULL DEFAULT gapless_now(),
  events    text NOT NULL
) WITH (toast_tuple_target = 8160);
CREATE INDEX outbox_event_by_commit ON outbox_event (xid, id);

-- What a statement is given, a row each: one array of these costs a fraction of one array per column.
-- They belong to the binaries that send them: a later binary that needs another shape brings another type.
CREATE TYPE tx_intake AS (
  place int, account int, tx_id uuid, scope text, request_id text, digest bytea, payload text, options text,
  metadata text
);
CREATE TYPE tx_move AS (
  lane bigint, tx_id uuid, ord bigint, from_state text, from_seq bigint, tells bool, state text, sub_state text,
  seq bigint, ended_at timestamptz
);
CREATE TYPE tx_slot AS (nonce bigint, tx_hash bytea, bound_at timestamptz);
CREATE TYPE tx_receipt AS (
  mined_hash bytea, mined_as text, block_number bigint, block_hash bytea, status bool, gas_used bigint, price text,
  contract_address bytea, mined_at timestamptz
);
CREATE TYPE tx_remarks AS (failure_code text, failure_reason text, wait_reason text, amended text);
CREATE TYPE attempt_write AS (
  lane bigint, nonce bigint, n int, tx_id uuid, kind text, route text, hash bytea, raw bytea,
  fees text, next_send_at timestamptz
);
