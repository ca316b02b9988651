//! `gapless migrate`: the store's schema, brought up to this binary's.

use std::sync::Arc;

use gapless_store::StoreUrl;
use gapless_store::clock::SystemClock;
use gapless_store::postgres::PostgresStore;
use gapless_store::sqlite::SqliteStore;
use serde_json::json;

use crate::config::Config;
use crate::wiring;

/// Migrates the configured store.
pub(crate) async fn run(config: &Config, json: bool) -> anyhow::Result<()> {
    let store = match config.store.url.parse::<StoreUrl>()? {
        StoreUrl::Memory => "memory",
        StoreUrl::Sqlite(path) => {
            SqliteStore::open(&path, Arc::new(SystemClock)).await?;
            "sqlite"
        }
        StoreUrl::Postgres(url) => {
            PostgresStore::migrate(&wiring::postgres(config, &url)).await?;
            "postgres"
        }
    };
    if json {
        println!("{}", json!({ "store": store, "migrated": true }));
    } else {
        println!("the {store} store is up to date");
    }
    Ok(())
}
