//! Opening and migrating: typed errors with codes, and nothing written.

use std::time::Duration;

use gapless_core::ports::store::Store;
use gapless_store::OpenError;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::postgres::PgCluster;
use gapless_testkit::process::free_port;

use super::raw;
use crate::world::database;

#[tokio::test]
async fn an_unmigrated_database_says_what_to_run() {
    let db = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
    let error = PostgresStore::open(&PostgresOptions::new(&db.url)).await.unwrap_err();
    assert_eq!(error.code(), "schema-too-old");
    assert!(error.to_string().contains("gapless migrate"), "{error}");
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        .fetch_one(&mut raw(&db.url).await)
        .await
        .unwrap();
    assert_eq!(tables, 0, "nothing was written");
}

#[tokio::test]
async fn a_schema_that_needs_a_newer_binary_is_refused_by_open_and_migrate() {
    let db = database().await;
    sqlx::raw_sql("UPDATE gapless_meta SET min_binary = 1000000")
        .execute(&mut raw(&db.url).await)
        .await
        .unwrap();
    let options = PostgresOptions::new(&db.url);
    for error in [
        PostgresStore::open(&options).await.unwrap_err(),
        PostgresStore::migrate(&options).await.unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::SchemaTooNew { min_binary: 1_000_000, .. }), "{error}");
        assert_eq!(error.code(), "schema-too-new");
    }
}

#[tokio::test]
async fn a_newer_schema_that_still_serves_this_binary_opens() {
    let db = database().await;
    let future = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                  VALUES (9999, 'from the future', true, '\\x00', 0)";
    sqlx::raw_sql(future).execute(&mut raw(&db.url).await).await.unwrap();
    PostgresStore::migrate(&PostgresOptions::new(&db.url)).await.unwrap();
    let store = PostgresStore::open(&PostgresOptions::new(&db.url)).await.unwrap();
    store.now().await.unwrap();
}

#[tokio::test]
async fn migrating_twice_and_at_once_is_migrating_once() {
    let db = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
    let options = PostgresOptions::new(&db.url);
    let both = futures::join!(PostgresStore::migrate(&options), PostgresStore::migrate(&options));
    both.0.unwrap();
    both.1.unwrap();
    PostgresStore::migrate(&options).await.unwrap();
    PostgresStore::open(&options).await.unwrap().epoch().await.unwrap();
}

#[tokio::test]
async fn tables_can_live_in_a_schema_of_their_own() {
    let db = PgCluster::shared().await.unwrap().empty_db().await.unwrap();
    sqlx::raw_sql("CREATE SCHEMA gapless").execute(&mut raw(&db.url).await).await.unwrap();
    let options = PostgresOptions { schema: "gapless".to_owned(), ..PostgresOptions::new(&db.url) };
    PostgresStore::migrate(&options).await.unwrap();
    super::stocked(&PostgresStore::open(&options).await.unwrap(), 1, 2).await;
    let home: String = sqlx::query_scalar("SELECT schemaname FROM pg_tables WHERE tablename = 'tx_request'")
        .fetch_one(&mut raw(&db.url).await)
        .await
        .unwrap();
    assert_eq!(home, "gapless");
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable() {
    let url = format!("postgres://postgres@127.0.0.1:{}/none", free_port().unwrap());
    let options = PostgresOptions { lease: Duration::from_secs(1), ..PostgresOptions::new(&url) };
    let error = PostgresStore::open(&options).await.unwrap_err();
    assert_eq!(error.code(), "store-unavailable");
}

#[tokio::test]
async fn sessions_are_set_up_for_durability_and_against_stalls() {
    let db = database().await;
    let options = PostgresOptions { lease: Duration::from_secs(9), ..PostgresOptions::new(&db.url) };
    let mut session = gapless_store::postgres::hooks::session(&options).await.unwrap();
    for (setting, expected) in [
        ("synchronous_commit", "on"),
        ("statement_timeout", "3s"),
        ("idle_in_transaction_session_timeout", "3s"),
        ("enable_seqscan", "off"),
        ("plan_cache_mode", "force_generic_plan"),
    ] {
        let found: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(&mut session)
            .await
            .unwrap();
        assert_eq!(found, expected, "{setting}");
    }
}
