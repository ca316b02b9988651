//! The database's own record of every write to a lane's tables, made by triggers: which token wrote, and which token
//! the lease had at that moment.

use gapless_testkit::postgres::TestDb;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

const TRIGGERS: &str = "
CREATE TABLE test_written (
  n bigserial PRIMARY KEY, xid text NOT NULL DEFAULT pg_current_xact_id()::text,
  what text NOT NULL, tx_id uuid, token bigint, lease bigint);
CREATE FUNCTION test_note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r jsonb := to_jsonb(coalesce(NEW, OLD));
BEGIN
  INSERT INTO test_written (what, tx_id, token, lease)
  SELECT TG_TABLE_NAME, (r ->> 'tx_id')::uuid, (r ->> 'fencing_token')::bigint,
    (SELECT l.fencing_token FROM submitter_lease l JOIN submitter s USING (submitter)
     WHERE s.submitter = r ->> 'submitter' OR s.number = (r ->> 'submitter_number')::int);
  RETURN NULL;
END $$;
CREATE TRIGGER test_note AFTER INSERT OR UPDATE ON tx_facts FOR EACH ROW EXECUTE FUNCTION test_note();
CREATE TRIGGER test_note AFTER UPDATE ON submitter_nonce_cursor FOR EACH ROW EXECUTE FUNCTION test_note();
CREATE TRIGGER test_note AFTER INSERT OR UPDATE OR DELETE ON tx_attempt FOR EACH ROW EXECUTE FUNCTION test_note();";

pub(crate) struct Audit(PgConnection);

impl Audit {
    /// Notes everything from now on.
    pub(crate) async fn start(db: &TestDb) -> Self {
        let mut connection = PgConnection::connect(&db.url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(TRIGGERS)).execute(&mut connection).await.unwrap();
        Self(connection)
    }

    /// How many writes were noted.
    pub(crate) async fn writes(&mut self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM test_written").fetch_one(&mut self.0).await.unwrap()
    }

    /// The tokens that wrote, in order, each once per run of writes.
    pub(crate) async fn tokens(&mut self) -> Vec<i64> {
        let tokens = sqlx::query_scalar("SELECT token FROM test_written WHERE token IS NOT NULL ORDER BY n");
        let mut tokens: Vec<i64> = tokens.fetch_all(&mut self.0).await.unwrap();
        tokens.dedup();
        tokens
    }

    /// Nobody wrote under a token that was not the lease's, and none came back after a later one.
    pub(crate) async fn assert_fenced(&mut self) {
        let stray: i64 = sqlx::query_scalar("SELECT count(*) FROM test_written WHERE token <> lease")
            .fetch_one(&mut self.0)
            .await
            .unwrap();
        assert_eq!(stray, 0, "writes under a token that was not the lease's");
        let tokens = self.tokens().await;
        assert!(tokens.is_sorted(), "an old token wrote again: {tokens:?}");
    }

    /// Every transaction that a write touched, once per write, with the token of that write.
    pub(crate) async fn touched(&mut self) -> Vec<(Uuid, i64)> {
        let rows: Vec<(Uuid, i64)> = sqlx::query_as(
            "SELECT t.tx_id, c.token FROM (SELECT DISTINCT xid, tx_id FROM test_written WHERE tx_id IS NOT NULL) t
             JOIN (SELECT DISTINCT xid, token FROM test_written WHERE what = 'submitter_nonce_cursor') c USING (xid)",
        )
        .fetch_all(&mut self.0)
        .await
        .unwrap();
        rows
    }
}
