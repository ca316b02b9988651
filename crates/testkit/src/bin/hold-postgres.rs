//! Starts a cluster, prints its process id and folder, and waits to be killed: the tests check that neither
//! outlives it.

use std::io::{Read, Write};

use gapless_testkit::{
    error::BoxError,
    postgres::{PgCluster, PgOptions},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let cluster = PgCluster::start(PgOptions::default()).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}\n{}", cluster.pid()?, cluster.dir().display())?;
    out.flush()?;
    // Ends by itself too, should whoever started it vanish.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
