//! Noticing that the database is not the one we wrote to.
//!
//! Everything rests on the premise that an acknowledged commit is never lost. A failover that lost
//! commits, or a restore, shows as another timeline or system identifier. Then nobody may go on as if
//! nothing had happened: a new epoch begins (old event cursors end), every token is raised far beyond
//! any that was ever handed out, and every submitter that has started is on HOLD until `recover` has
//! compared it with its chain.

use sqlx::{Connection, PgConnection};

const SAME: &str = "
  SELECT m.system_identifier = s.system_identifier AND m.timeline = c.timeline_id
  FROM gapless_meta m, pg_control_system() s, pg_control_checkpoint() c";

const NEW_EPOCH: &str = "
  UPDATE gapless_meta m SET epoch = gen_random_uuid(),
    system_identifier = s.system_identifier, timeline = c.timeline_id
  FROM pg_control_system() s, pg_control_checkpoint() c
  WHERE (m.system_identifier, m.timeline) IS DISTINCT FROM (s.system_identifier, c.timeline_id)";

const RAISE_TOKENS: &str = "
  UPDATE submitter_lease SET fencing_token = fencing_token + (1::bigint << 32), expires_at = to_timestamp(0)";

const HOLD: &str = r#"
  UPDATE submitter_nonce_cursor SET version = version + 1,
    condition = CASE WHEN condition IN ('protect', 'paused', 'disabled') THEN condition ELSE 'hold' END,
    conditions = (conditions::jsonb
      || '{"hold":{"cause":"epoch","reason":"the database may have lost commits; run gapless recover"}}')::json
  WHERE start_nonce IS NOT NULL"#;

/// Runs on every new connection.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if sqlx::query_scalar(SAME).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let mut tx = connection.begin().await?;
    // The row lock makes one connection of the cluster do this; the others find it done.
    if sqlx::query(NEW_EPOCH).execute(&mut *tx).await?.rows_affected() > 0 {
        sqlx::query(RAISE_TOKENS).execute(&mut *tx).await?;
        sqlx::query(HOLD).execute(&mut *tx).await?;
        tracing::error!("the database's identity changed: new epoch, every started submitter is on HOLD");
    }
    tx.commit().await
}
