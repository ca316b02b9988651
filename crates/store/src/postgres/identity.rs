//! Noticing that the database is not the one we wrote to.
//!
//! Everything rests on the premise that an acknowledged commit is never lost. A failover that lost
//! commits, or a restore, shows as another timeline or system identifier. Then nobody may go on as if
//! nothing had happened: a new epoch begins (old event cursors end), every token is raised far beyond
//! any that was ever handed out, and every submitter is on HOLD until `recover` has compared it
//! with its chain.

use sqlx::{Connection, PgConnection};

const SAME: &str = "
  SELECT m.system_identifier = s.system_identifier AND m.timeline = gapless_timeline()
  FROM gapless_meta m, pg_control_system() s";

const NEW_EPOCH: &str = "
  UPDATE gapless_meta m SET epoch = gen_random_uuid(),
    system_identifier = s.system_identifier, timeline = gapless_timeline()
  FROM pg_control_system() s
  WHERE (m.system_identifier, m.timeline) IS DISTINCT FROM (s.system_identifier, gapless_timeline())";

const RAISE_TOKENS: &str = "
  UPDATE submitter_lease SET fencing_token = fencing_token + (1::bigint << 32), expires_at = to_timestamp(0)";

/// Every submitter, started or not: the commits that were lost may have been its first.
const HOLD: &str = r#"
  UPDATE submitter_nonce_cursor SET version = version + 1,
    condition = CASE WHEN condition IN ('protect', 'paused', 'disabled') THEN condition ELSE 'hold' END,
    conditions = (conditions::jsonb || jsonb_build_object('holds', coalesce(conditions::jsonb -> 'holds', '{}')
      || '{"epoch": "the database may have lost commits; run gapless recover"}'))::json"#;

const TELL: &str = r#"
  INSERT INTO outbox_event (submitter, events)
  SELECT submitter, ('[{"e":"submitter.hold","s":' || version || ',"d":{"reason":"epoch"}}]')::json
  FROM submitter_nonce_cursor"#;

/// After a logical restore old rows may carry transaction ids that the new cluster has not reached; they would stay
/// hidden and then come after newer ones. Their row numbers keep their order.
const ADOPT_EVENTS: &str =
    "UPDATE outbox_event SET xid = pg_current_xact_id() WHERE xid >= pg_current_xact_id()";

/// Runs on every new connection.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if sqlx::query_scalar(SAME).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let mut tx = connection.begin().await?;
    // The row lock makes one connection of the cluster do this; the others find it done.
    if sqlx::query(NEW_EPOCH).execute(&mut *tx).await?.rows_affected() > 0 {
        sqlx::query(RAISE_TOKENS).execute(&mut *tx).await?;
        sqlx::query(ADOPT_EVENTS).execute(&mut *tx).await?;
        sqlx::query(HOLD).execute(&mut *tx).await?;
        sqlx::query(TELL).execute(&mut *tx).await?;
        tracing::error!("the database's identity changed: new epoch, every submitter is on HOLD");
    }
    tx.commit().await
}
