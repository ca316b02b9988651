//! The fence under a forced interleaving: the writer passes its check and stalls, its lease runs out, another
//! node takes over and reads, the writer commits. The seed's `EXISTS` form lets the late write through; ours
//! makes the takeover wait, however it is written.

use std::time::Duration;

use gapless_core::change::Verdict;
use gapless_core::lease::AcquireKind;
use gapless_core::ports::store::{Acquired, Store};
use gapless_store::postgres::{PostgresOptions, hooks};
use gapless_testkit::fixtures::owner;
use gapless_testkit::wait::eventually;
use sqlx::{Connection, PgConnection};

use super::{backend_pid, open, raw, stocked, take, terms, waits_for_a_lock};
use crate::world::database;

const LEASE: Duration = Duration::from_secs(30);

/// Takeovers as people write them: each raises the token of an expired lease.
const TAKEOVERS: [(&str, &str); 3] = [
    (
        "UPDATE",
        "UPDATE submitter_lease SET owner_node = 'b', owner_process = gen_random_uuid(),
           fencing_token = fencing_token + 1, expires_at = clock_timestamp() + interval '1 minute'
         WHERE submitter = $1 AND expires_at < clock_timestamp()",
    ),
    (
        "upsert",
        "INSERT INTO submitter_lease AS l (submitter, owner_node, owner_process, fencing_token, expires_at)
         VALUES ($1, 'b', gen_random_uuid(), 1, clock_timestamp() + interval '1 minute')
         ON CONFLICT (submitter) DO UPDATE SET owner_node = 'b', owner_process = EXCLUDED.owner_process,
           fencing_token = l.fencing_token + 1, expires_at = EXCLUDED.expires_at
         WHERE l.expires_at < clock_timestamp()",
    ),
    (
        "SELECT FOR UPDATE",
        "WITH l AS (SELECT submitter, fencing_token FROM submitter_lease WHERE submitter = $1
           AND expires_at < clock_timestamp() FOR UPDATE)
         UPDATE submitter_lease x SET owner_node = 'b', owner_process = gen_random_uuid(),
           fencing_token = l.fencing_token + 1, expires_at = clock_timestamp() + interval '1 minute'
         FROM l WHERE x.submitter = l.submitter",
    ),
];

/// Lets the lease run out, as time would. A renewal-like update: KEY SHARE lets it through.
async fn expire(db: &mut PgConnection, submitter: &str) {
    sqlx::query(
        "UPDATE submitter_lease SET expires_at = clock_timestamp() - interval '1 hour' WHERE submitter = $1",
    )
    .bind(submitter)
    .execute(db)
    .await
    .unwrap();
}

async fn state_of(db: &mut PgConnection, tx_id: uuid::Uuid) -> String {
    sqlx::query_scalar("SELECT state FROM managed_tx WHERE tx_id = $1")
        .bind(tx_id)
        .fetch_one(db)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_takeover_waits_for_a_writer_that_passed_its_check_however_it_is_written() {
    for (form, takeover) in TAKEOVERS {
        let db = database().await;
        let store = open(&db.url, LEASE).await;
        let (submitter, queue) = stocked(&store, 1, 1).await;
        let lane = take(&store, "a", 1, &submitter, &terms(LEASE)).await;
        let change = lane.change(|draft| lane.bind(draft, &queue));
        let tx_id = queue[0].tx_id().0;

        let mut session =
            hooks::session(&PostgresOptions { lease: LEASE, ..PostgresOptions::new(&db.url) }).await.unwrap();
        let mut writer = session.begin().await.unwrap();
        let verdicts = hooks::execute_fenced(&mut writer, &[&change]).await.unwrap();
        assert!(matches!(verdicts[0], Verdict::Applied { .. }), "{verdicts:?}");

        let mut observer = raw(&db.url).await;
        expire(&mut observer, submitter.as_str()).await;
        let mut other = raw(&db.url).await;
        let pid = backend_pid(&mut other).await;
        let name = submitter.as_str().to_owned();
        let taking = tokio::spawn(async move {
            let taken = sqlx::query(takeover).bind(name).execute(&mut other).await.unwrap();
            assert_eq!(taken.rows_affected(), 1);
            state_of(&mut other, tx_id).await
        });
        waits_for_a_lock(&mut observer, pid).await;
        assert_eq!(state_of(&mut observer, tx_id).await, "QUEUED", "the write is not committed yet");
        writer.commit().await.unwrap();
        assert_eq!(taking.await.unwrap(), "TRACKING", "{form}: the new owner reads what the old one wrote");
    }
}

#[tokio::test]
async fn a_writer_that_comes_after_the_takeover_is_refused_however_it_is_written() {
    for (form, takeover) in TAKEOVERS {
        let db = database().await;
        let store = open(&db.url, LEASE).await;
        let (submitter, queue) = stocked(&store, 1, 1).await;
        let lane = take(&store, "a", 1, &submitter, &terms(LEASE)).await;
        let change = lane.change(|draft| lane.bind(draft, &queue));
        let mut observer = raw(&db.url).await;
        expire(&mut observer, submitter.as_str()).await;

        // While the takeover is uncommitted its row is skipped, not waited for.
        let mut other = raw(&db.url).await;
        let mut taking = other.begin().await.unwrap();
        sqlx::query(takeover).bind(submitter.as_str()).execute(&mut *taking).await.unwrap();
        let verdicts = store.commit(std::slice::from_ref(&change)).await.unwrap();
        assert!(matches!(verdicts[0], Verdict::Retry | Verdict::Fenced), "{form}: {verdicts:?}");
        taking.commit().await.unwrap();
        assert_eq!(store.commit(&[change]).await.unwrap(), [Verdict::Fenced], "{form}");
        assert_eq!(state_of(&mut observer, queue[0].tx_id().0).await, "QUEUED");
    }
}

#[tokio::test]
async fn a_live_lease_whose_row_is_being_taken_is_skipped_and_told_to_retry() {
    let db = database().await;
    let store = open(&db.url, LEASE).await;
    let (one, _) = stocked(&store, 1, 1).await;
    let (two, _) = stocked(&store, 2, 1).await;
    let lanes =
        [take(&store, "a", 1, &one, &terms(LEASE)).await, take(&store, "a", 1, &two, &terms(LEASE)).await];
    let mut other = raw(&db.url).await;
    let mut holding = other.begin().await.unwrap();
    sqlx::query("SELECT FROM submitter_lease WHERE submitter = $1 FOR UPDATE")
        .bind(one.as_str())
        .execute(&mut *holding)
        .await
        .unwrap();
    let changes = lanes.each_ref().map(|lane| lane.change(|_| {}));
    let verdicts = store.commit(&changes).await.unwrap();
    assert_eq!(verdicts[0], Verdict::Retry);
    assert!(matches!(verdicts[1], Verdict::Applied { .. }), "the other lane did not wait");
    holding.rollback().await.unwrap();
    assert!(matches!(store.commit(&changes[..1]).await.unwrap()[0], Verdict::Applied { .. }));
}

#[tokio::test]
async fn our_own_takeover_waits_too_and_renewals_do_not() {
    let db = database().await;
    let store = open(&db.url, LEASE).await;
    let (submitter, queue) = stocked(&store, 1, 1).await;
    let lane = take(&store, "a", 1, &submitter, &terms(LEASE)).await;
    let change = lane.change(|draft| lane.bind(draft, &queue));
    let mut session =
        hooks::session(&PostgresOptions { lease: LEASE, ..PostgresOptions::new(&db.url) }).await.unwrap();
    let mut writer = session.begin().await.unwrap();
    hooks::execute_fenced(&mut writer, &[&change]).await.unwrap();

    let renewed = store.renew(std::slice::from_ref(&lane.grant), &terms(LEASE)).await.unwrap();
    assert!(matches!(renewed[0], gapless_core::ports::store::Renewal::Renewed(_)), "{renewed:?}");
    let mut observer = raw(&db.url).await;
    expire(&mut observer, submitter.as_str()).await;
    let taker = store.clone();
    let name = submitter.clone();
    let taking = tokio::spawn(async move {
        taker.acquire(&owner("b", 2).unwrap(), &[name], &terms(LEASE)).await.unwrap().remove(0)
    });
    let waiting = "SELECT a.pid FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid AND NOT l.granted
                   WHERE a.datname = current_database()";
    eventually(Duration::from_secs(10), "the takeover to wait", || async {
        let mut observer = raw(&db.url).await;
        sqlx::query_scalar::<_, i32>(waiting).fetch_optional(&mut observer).await.unwrap()
    })
    .await
    .unwrap();
    writer.commit().await.unwrap();
    let taken = taking.await.unwrap();
    assert!(matches!(taken, Acquired::Held { kind: AcquireKind::Takeover, .. }), "{taken:?}");
    assert_eq!(store.load_lane(&submitter).await.unwrap().unwrap().attempts.len(), 1);
}

/// The hole this design closes, shown open: a plain `EXISTS` takes no lock, so the takeover does not wait,
/// the new owner reads the old state, and the old owner's write lands after it.
#[tokio::test]
async fn the_plain_exists_form_lets_a_late_write_overwrite_the_new_owner() {
    const EXISTS_FORM: &str = "
      INSERT INTO tx_facts (tx_id, ord, seq, submitter_number, state, sub_state, fencing_token, event_rows)
      SELECT m.tx_id, m.ord, m.seq, m.submitter_number, m.state, 'HELD', $2, '' FROM managed_tx m
      WHERE m.tx_id = $1 AND EXISTS (SELECT 1 FROM submitter_lease l
        WHERE l.submitter = m.submitter AND l.owner_node = 'a' AND l.fencing_token = $2
          AND l.expires_at > clock_timestamp())";
    for (form, takeover) in TAKEOVERS {
        let db = database().await;
        let store = open(&db.url, LEASE).await;
        let (submitter, queue) = stocked(&store, 1, 1).await;
        let tx_id = queue[0].tx_id().0;
        let lane = take(&store, "a", 1, &submitter, &terms(LEASE)).await;
        let old_token = i64::try_from(lane.grant.token().0).unwrap();

        let mut session = raw(&db.url).await;
        let mut writer = session.begin().await.unwrap();
        let written =
            sqlx::query(EXISTS_FORM).bind(tx_id).bind(old_token).execute(&mut *writer).await.unwrap();
        assert_eq!(written.rows_affected(), 1, "the check passed");

        let mut observer = raw(&db.url).await;
        expire(&mut observer, submitter.as_str()).await;
        let mut other = raw(&db.url).await;
        sqlx::query(takeover).bind(submitter.as_str()).execute(&mut other).await.unwrap();
        let read =
            "SELECT m.sub_state, l.fencing_token FROM managed_tx m JOIN submitter_lease l USING (submitter)
                    WHERE m.tx_id = $1";
        let seen: (Option<String>, i64) =
            sqlx::query_as(read).bind(tx_id).fetch_one(&mut other).await.unwrap();
        assert_eq!(
            seen,
            (None, old_token + 1),
            "{form}: the new owner holds a newer token and sees no write"
        );

        writer.commit().await.unwrap();
        let after: (Option<String>, i64) =
            sqlx::query_as(read).bind(tx_id).fetch_one(&mut other).await.unwrap();
        assert_eq!(after.0.as_deref(), Some("HELD"), "{form}: the zombie's write landed after the takeover");
    }
}
