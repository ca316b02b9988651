//! The same promises on geth, and what it says in its own words.

mod words;

use gapless_core::ports::chain::Chain;
use gapless_evm::EvmChain;
use gapless_testkit::geth::{Geth, GethOptions, Mining};

use crate::common::*;
use crate::conformance as suite;

async fn node(mining: Mining) -> Geth {
    Geth::start(GethOptions { mining, ..GethOptions::default() }).await.unwrap()
}

async fn eager() -> Geth {
    node(Mining::OnDemand).await
}

async fn patient() -> Geth {
    node(Mining::WhenTold).await
}

#[tokio::test]
async fn a_chain_keeps_its_promises() {
    suite::keeps_its_promises(&patient().await).await;
}

#[tokio::test]
async fn pending_counts_run_ahead_of_latest() {
    suite::pending_runs_ahead(&patient().await).await;
}

#[tokio::test]
async fn many_go_out_in_order_in_few_requests() {
    suite::many_go_out_in_few_requests(&patient().await).await;
}

#[tokio::test]
async fn a_block_of_our_transfers_proves_their_receipts() {
    suite::a_block_of_transfers_proves_its_receipts(&patient().await).await;
}

#[tokio::test]
async fn a_block_with_anything_else_proves_nothing() {
    suite::other_blocks_prove_nothing(&patient().await).await;
}

#[tokio::test]
async fn estimates_tell_gas_from_reverts_from_poverty() {
    suite::estimates_tell_apart(&eager().await).await;
}

#[tokio::test]
async fn balances_are_read() {
    suite::balances_are_ours_to_read(&eager().await).await;
}

#[tokio::test]
async fn quotes_follow_the_base_fee_and_a_burst_costs_one_call() {
    suite::quotes_follow_the_base_fee(&eager().await).await;
}

#[tokio::test]
async fn another_chain_is_quarantined_and_named() {
    let options = GethOptions { chain_id: 1337, ..GethOptions::default() };
    let (other, right) = (Geth::start(options).await.unwrap(), eager().await);
    let chain = EvmChain::new(&crate::common::options([other.url(), right.url()])).unwrap();
    chain.balance(&account()).await.unwrap();
    let status = chain.endpoints();
    assert_eq!(status[0].detail, "quarantined: it serves chain 1337, not 31337");
    assert!(!status[0].healthy && status[1].healthy);
}
