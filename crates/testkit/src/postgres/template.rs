//! A migrated database per test, cloned from a template.
//!
//! Migrations run once per process; each test then gets a file copy. PostgreSQL refuses to copy a database that
//! anybody is connected to, so a finished template takes no connections and copies are made one at a time.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use sqlx::Connection;
use tokio::sync::OnceCell;

use super::{PgCluster, admin::run};
use crate::{Error, Result, error::BoxError};

/// The first version that lets the caller choose how a database is copied.
const HAS_STRATEGY: i32 = 150_000;

/// A database of one test's own. It goes with its cluster; nothing drops it earlier, so that a failed test's
/// data can be looked at for as long as the process lives.
#[derive(Clone, Debug)]
pub struct TestDb {
    /// Where to connect.
    pub url: String,
    /// The database's name.
    pub name: String,
}

/// Which templates exist, and whose turn it is to copy one.
#[derive(Debug, Default)]
pub(super) struct Templates {
    ready: Mutex<HashMap<String, Arc<OnceCell<()>>>>,
    turn: tokio::sync::Mutex<()>,
    clones: AtomicU64,
}

impl PgCluster {
    /// Makes the named template unless it exists: an empty database on which `prepare` is run once.
    ///
    /// Callers that come while it is being made wait for it. If making it fails, the next caller tries anew.
    pub async fn template<F, Fut, E>(&self, name: &str, prepare: F) -> Result<()>
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<BoxError>,
    {
        let database = template_database(name)?;
        let cell = {
            let mut ready = self.templates.ready.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(ready.entry(name.to_owned()).or_default())
        };
        cell.get_or_try_init(|| async {
            self.admin(&[
                // Left over if whoever made it before was cancelled half-way.
                format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)"),
                format!("CREATE DATABASE {database}"),
            ])
            .await?;
            prepare(self.url(&database))
                .await
                .map_err(|source| Error::Template { name: name.to_owned(), source: source.into() })?;
            self.admin(&[
                format!("ALTER DATABASE {database} WITH ALLOW_CONNECTIONS false IS_TEMPLATE true"),
                // A pool that `prepare` dropped without closing may still be connected.
                format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
                ),
            ])
            .await
        })
        .await
        .copied()
    }

    /// A new database that is a copy of the named template.
    pub async fn clone_template(&self, name: &str) -> Result<TestDb> {
        let template = template_database(name)?;
        let number = self.templates.clones.fetch_add(1, Ordering::Relaxed);
        let clone = format!("test_{number}_{name}");

        let _turn = self.templates.turn.lock().await;
        let mut connection = self.admin_connection().await?;
        let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
            .fetch_one(&mut connection)
            .await
            .map_err(Error::sql("asking for the server's version"))?;
        let strategy = if version >= HAS_STRATEGY { " STRATEGY FILE_COPY" } else { "" };
        run(&mut connection, &format!("CREATE DATABASE {clone} TEMPLATE {template}{strategy}")).await?;
        connection.close().await.map_err(Error::sql("closing the administrative connection"))?;
        Ok(TestDb { url: self.url(&clone), name: clone })
    }

    /// A new empty database.
    pub async fn empty_db(&self) -> Result<TestDb> {
        let number = self.templates.clones.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.admin(&[format!("CREATE DATABASE {name}")]).await?;
        Ok(TestDb { url: self.url(&name), name })
    }
}

/// The template's database. Names go into statements as they are, hence only plain ones are taken.
fn template_database(name: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
        let why = format!("`{name}` is no template name: take up to 40 of a-z, 0-9 and _");
        return Err(Error::Misuse(why));
    }
    Ok(format!("template_{name}"))
}
