//! A program that makes its own transactions for nonces that Gapless gives it, and may be killed at any moment.
//!
//! ```sh
//! anvil &
//! cargo run -p gapless-engine --example with_nonce -- http://127.0.0.1:8545 orders.db order-1
//! ```
//!
//! With `hold` as a fourth word it never comes back from its closure: kill it, start it again without, and look.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::U256;
use gapless_core::fees::Wei;
use gapless_core::ids::RequestId;
use gapless_core::intent::Payload;
use gapless_core::submitter::SubmitterId;
use gapless_engine::{Gapless, LaneSettings, NonceContext, NonceRequest};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_store::clock::SystemClock;
use gapless_store::sqlite::SqliteStore;

/// The first of anvil's well-known accounts. Everybody has its key.
const ACCOUNT: &str = "eip155:31337:0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
const RECEIVER: &str = "0x5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rpc, file, order, rest @ ..] = words.as_slice() else {
        return Err("give an RPC address, a file and the name of an order".into());
    };
    let hold = rest.first().is_some_and(|word| word == "hold");
    let account: SubmitterId = ACCOUNT.parse()?;
    let settings = LaneSettings {
        confirmations: 0,
        reservation_timeout: Duration::from_secs(3),
        recycle_hold: Duration::from_secs(1),
        ..LaneSettings::default()
    };
    let clock = Arc::new(SystemClock);
    let gapless = Gapless::builder()
        .store(Arc::new(SqliteStore::open(Path::new(file), clock.clone()).await?))
        .clock(clock)
        .chain(account.chain(), Arc::new(EvmChain::new(&EvmOptions::new(31_337, [rpc]))?))
        .submitter(account.clone(), settings, Arc::new(LocalSigner::from_hex(KEY, account.address())?))
        .start()
        .await?;
    let make = |context: NonceContext| async move {
        println!("nonce {}", context.nonce());
        if hold {
            std::future::pending::<()>().await;
        }
        let to = RECEIVER.parse().map_err(|error| format!("{error}"))?;
        Ok::<_, String>(Payload { to: Some(to), value: Wei(U256::from(1)), ..Payload::default() })
    };
    let request = NonceRequest::new(account, RequestId::parse(order)?);
    match gapless.with_nonce(request, make).await {
        Ok(made) => {
            let view = gapless.wait(made.view.tx_id, Duration::from_secs(60)).await?;
            println!("{order} {}", view.state);
        }
        Err(error) => println!("{order} {}", error.code()),
    }
    gapless.stop().await;
    Ok(())
}
