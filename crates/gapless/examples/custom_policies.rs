//! A program that embeds Gapless and decides for itself what a dearer attempt offers, and when somebody is called about a
//! transaction that does not move.
//!
//! ```sh
//! anvil --block-time 20 &
//! cargo run -p gapless --example custom_policies -- http://127.0.0.1:8545
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy_primitives::{Address, U256};
use anyhow::Context;
use gapless_core::bump::{BumpRules, Dearest};
use gapless_core::fees::{Fees, GasPrice, Wei};
use gapless_core::govern::StuckRules;
use gapless_core::ids::RequestId;
use gapless_core::intent::{Intent, Options, Payload};
use gapless_core::ports::policy::{
    BumpContext, Decision, GasBumpPolicy, StuckAction, StuckContext, StuckPolicy,
};
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_engine::handle::Request;
use gapless_engine::{Gapless, LaneSettings};
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_store::clock::SystemClock;
use gapless_store::memory::MemoryStore;

/// The first of anvil's well-known accounts. Everybody has its key.
const ACCOUNT: &str = "eip155:31337:0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
const RECEIVER: Address = Address::repeat_byte(0x5e);

/// Offers twice what the slot's dearest attempt did. The lane keeps the caps, and the tenth more that nodes ask for.
#[derive(Debug, Default)]
pub(crate) struct Doubling {
    pub(crate) asked: AtomicU64,
}

impl GasBumpPolicy for Doubling {
    fn bump(&self, context: &BumpContext<'_>) -> Option<Fees> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let twice = |price: GasPrice| GasPrice(price.0.saturating_mul(2).max(1));
        let dearest = Dearest::of(context.attempts)?;
        Some(Fees::Dynamic {
            max_fee_per_gas: twice(dearest.ceiling),
            max_priority_fee_per_gas: twice(dearest.tip),
        })
    }
}

/// Never cancels; calls somebody once a payment has been on its way for too long.
#[derive(Debug)]
pub(crate) struct CallSomebody {
    pub(crate) after: Duration,
    pub(crate) asked: AtomicU64,
}

impl StuckPolicy for CallSomebody {
    fn decide(&self, context: &StuckContext<'_>) -> Decision {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.next_act(context) {
            Some(due) if context.now >= due => StuckAction::Escalate.into(),
            _ => StuckAction::KeepTrying.into(),
        }
    }

    /// Lets `gapless stuck plan` foretell it.
    fn next_act(&self, context: &StuckContext<'_>) -> Option<Timestamp> {
        let facts = &context.tx.facts;
        let untold = facts.state != TxState::Stuck && facts.mined.is_none();
        facts.bound_at.filter(|_| untold).map(|bound| bound.plus(self.after))
    }
}

/// An engine with these policies, on a chain behind an address.
pub(crate) async fn start(
    rpc: &str,
    bump: Arc<Doubling>,
    stuck: Arc<CallSomebody>,
) -> anyhow::Result<Gapless> {
    let clock = Arc::new(SystemClock);
    let account: SubmitterId = ACCOUNT.parse()?;
    let signer = LocalSigner::from_hex(KEY, account.address())?;
    let settings = LaneSettings {
        // In a block is good enough for an example.
        confirmations: 0,
        bump: BumpRules { enabled: true, min_interval: Duration::from_secs(1), ..BumpRules::default() },
        stuck: Arc::new(StuckRules { stall_after: Duration::from_secs(1), ..StuckRules::default() }),
        ..LaneSettings::default()
    };
    let gapless = Gapless::builder()
        .node_id("example")
        .store(Arc::new(MemoryStore::new(clock.clone())))
        .clock(clock)
        .chain(account.chain(), Arc::new(EvmChain::new(&EvmOptions::new(31_337, [rpc]))?))
        .submitter(account, settings, Arc::new(signer))
        .gas_bump_policy(bump)
        .stuck_policy(stuck)
        .start()
        .await?;
    Ok(gapless)
}

/// One wei for the receiver, under a name of ours: asked for twice, it still happens once.
pub(crate) fn payment(name: &str) -> anyhow::Result<Request> {
    let payload = Payload { to: Some(RECEIVER), value: Wei(U256::from(1)), ..Payload::default() };
    Ok(Request {
        submitter: ACCOUNT.parse()?,
        request_id: RequestId::parse(name)?,
        intent: Intent { payload, options: Options::default() },
        metadata: None,
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let rpc = std::env::args().nth(1).context("give the address of a development chain's RPC")?;
    let bump = Arc::new(Doubling::default());
    let stuck = Arc::new(CallSomebody { after: Duration::from_secs(5), asked: AtomicU64::new(0) });
    let gapless = start(&rpc, bump.clone(), stuck.clone()).await?;
    let accepted = gapless.submit(payment("example-1")?).await?;
    println!("{} accepted", accepted.view.tx_id);
    let view = gapless.wait(accepted.view.tx_id, Duration::from_secs(120)).await?;
    for event in gapless.handle().tx_events(view.tx_id).await? {
        println!("{:>3}  {}", event.seq.0, event.kind);
    }
    println!(
        "{}; the policies were asked {} and {} times",
        view.state,
        bump.asked.load(Ordering::Relaxed),
        stuck.asked.load(Ordering::Relaxed)
    );
    gapless.stop().await;
    Ok(())
}
