//! What every chain adapter owes its port. Bodies take `&dyn Chain`, so that another adapter can be held
//! to them, and any node, so that each kind of node is.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use gapless_core::attempt::{Route, StoredAttempt};
use gapless_core::fees::{FeeWishes, Fees, Gas, GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::intent::{Options, Payload};
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::{BlockRef, Chain, ChainError, Estimate, Receipt, Sighting, Tag, Unsigned};
use gapless_core::submitter::SubmitterId;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::node::EthNode;
use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::wait::eventually;

use crate::common::*;

async fn not_found_is_an_answer(chain: &dyn Chain) {
    let nowhere = B256::repeat_byte(7);
    assert_eq!(chain.receipts(&[nowhere, nowhere]).await, Ok(vec![None, None]));
    assert_eq!(chain.receipts(&[]).await, Ok(vec![]));
    assert_eq!(chain.block_at(1 << 40).await, Ok(None));
    assert_eq!(chain.block_by_hash(nowhere).await, Ok(None));
}

async fn resending_is_harmless(chain: &dyn Chain, node: &impl EthNode) {
    let attempts = transfers(0..3, Route::Public).await;
    assert_eq!(chain.send(&all(&attempts)).await, vec![SendOutcome::Accepted; 3]);
    assert_eq!(chain.send(&all(&attempts)).await, vec![SendOutcome::AlreadyKnown; 3]);
    node.mine(1).await.unwrap();
    assert!(receipt_of(chain, attempts[2].hash).await.succeeded);
    assert_eq!(chain.send(&all(&attempts)).await, vec![SendOutcome::NonceTooLow; 3]);
    assert_eq!(chain.counts(&account()).await.unwrap().latest, Nonce(3));
}

async fn blocks_agree_with_each_other(chain: &dyn Chain) {
    let head = chain.head().await.unwrap();
    assert_eq!(chain.block_at(head.this.number).await, Ok(Some(head.clone())));
    assert_eq!(chain.block_by_hash(head.this.hash).await, Ok(Some(head.clone())));
    let parent = chain.block_at(head.this.number - 1).await.unwrap().unwrap();
    assert_eq!(parent.this.hash, head.parent);
    let genesis = chain.block_at(0).await.unwrap().unwrap();
    assert_eq!(chain.genesis().await, Ok(genesis.this.hash));
    assert!(head.base_fee.is_some() && head.gas_limit > Gas(21_000));
}

async fn counts_belong_to_their_head(chain: &dyn Chain, attempts: &[StoredAttempt]) {
    let counts = chain.counts(&account()).await.unwrap();
    let head = chain.head().await.unwrap();
    assert_eq!(counts.at, head.this);
    assert_eq!(chain.count_at(&account(), counts.at.hash).await, Ok(counts.latest));
    assert_eq!(counts.latest, Nonce(attempts.len() as u64));
    assert_eq!(chain.count_at(&account(), head.parent).await, Ok(Nonce(0)));
}

async fn senders_are_seen_in_blocks(chain: &dyn Chain, attempts: &[StoredAttempt]) {
    let block = receipt_of(chain, attempts[1].hash).await.block;
    let sighting = async |nonce| chain.sighting(&account(), Nonce(nonce), block.hash).await;
    let span = sighting(1).await.unwrap().span;
    assert!(span.is_some_and(|(low, high)| low <= Nonce(1) && Nonce(1) <= high), "{span:?}");
    assert_eq!(sighting(1).await, Ok(Sighting { hash: Some(attempts[1].hash), span }));
    assert_eq!(sighting(77).await, Ok(Sighting { hash: None, span }));
    let other = SubmitterId::evm(CHAIN, Address::repeat_byte(0xee));
    assert_eq!(chain.sighting(&other, Nonce(1), block.hash).await, Ok(Sighting { hash: None, span: None }));
    let nowhere = chain.sighting(&account(), Nonce(1), B256::repeat_byte(7)).await;
    assert!(matches!(nowhere, Err(ChainError::Pruned(_))), "{nowhere:?}");
    let nowhere = chain.count_at(&account(), B256::repeat_byte(7)).await;
    assert!(matches!(nowhere, Err(ChainError::Pruned(_))), "{nowhere:?}");
}

async fn tags_name_blocks_below_the_head(chain: &dyn Chain) {
    let head = chain.head().await.unwrap().this;
    let safe = chain.tagged(Tag::Safe).await.unwrap().unwrap();
    let finalized = chain.tagged(Tag::Finalized).await.unwrap().unwrap();
    assert!(finalized.number <= safe.number && safe.number <= head.number, "{finalized:?} {safe:?}");
    for named in [safe, finalized] {
        assert_eq!(chain.block_at(named.number).await.unwrap().unwrap().this, named);
    }
}

async fn accounts_of_other_chains_are_not_mixed_up(chain: &dyn Chain) {
    let elsewhere = SubmitterId::evm(CHAIN + 1, ACCOUNT);
    assert!(matches!(chain.balance(&elsewhere).await, Err(ChainError::Unavailable(_))));
    assert!(matches!(chain.counts(&elsewhere).await, Err(ChainError::Unavailable(_))));
}

pub(crate) async fn keeps_its_promises(node: &impl EthNode) {
    let chain = chain_of(node.url());
    not_found_is_an_answer(&chain).await;
    resending_is_harmless(&chain, node).await;
    let attempts = transfers(0..3, Route::Public).await;
    blocks_agree_with_each_other(&chain).await;
    counts_belong_to_their_head(&chain, &attempts).await;
    senders_are_seen_in_blocks(&chain, &attempts).await;
    accounts_of_other_chains_are_not_mixed_up(&chain).await;
    tags_name_blocks_below_the_head(&chain).await;
    let status = chain.endpoints().remove(0);
    assert!(status.healthy, "{status:?}");
    let height = chain.head().await.unwrap().this.number;
    assert_eq!((status.name, status.detail), (node.url(), format!("head {height}")));
}

pub(crate) async fn pending_runs_ahead(node: &impl EthNode) {
    let chain = chain_of(node.url());
    chain.send(&all(&transfers(0..5, Route::Public).await)).await;
    // A node may answer the send before its pool has counted it.
    let ahead = || async {
        let counts = chain.counts(&account()).await.unwrap();
        assert_eq!(counts.latest, Nonce(0));
        (counts.pending == Nonce(5)).then_some(())
    };
    eventually(SOON, "the pool's count", ahead).await.unwrap();
}

pub(crate) async fn many_go_out_in_few_requests(node: &impl EthNode) {
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = chain_of(proxy.url());
    chain.head().await.unwrap();
    let before = proxy.requests();
    let attempts = transfers(0..250, Route::Public).await;
    assert_eq!(chain.send(&all(&attempts)).await, vec![SendOutcome::Accepted; 250]);
    assert_eq!(proxy.requests() - before, 5);
    node.mine(1).await.unwrap();
    let hashes: Vec<B256> = attempts.iter().map(|attempt| attempt.hash).collect();
    let receipts = chain.receipts(&hashes).await.unwrap();
    assert!(receipts.iter().zip(&hashes).all(|(found, hash)| found.as_ref().unwrap().hash == *hash));
    assert_eq!(proxy.requests() - before, 8);
}

/// What was sent is in one block, and this process has seen that block.
async fn mined_together(chain: &dyn Chain, node: &impl EthNode, attempts: &[StoredAttempt]) -> BlockRef {
    let outcomes = chain.send(&all(attempts)).await;
    assert!(outcomes.iter().all(SendOutcome::is_in_pool), "{outcomes:?}");
    node.mine(1).await.unwrap();
    let mut blocks = BTreeSet::new();
    for attempt in attempts {
        blocks.insert(receipt_of(chain, attempt.hash).await.block);
    }
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    let block = blocks.pop_first().unwrap();
    assert_eq!(chain.block_at(block.number).await.unwrap().unwrap().this, block);
    block
}

pub(crate) async fn a_block_of_transfers_proves_its_receipts(node: &impl EthNode) {
    let chain = chain_of(node.url());
    // With call data below and above its floor price, and of another type.
    let with_data = |nonce, data: &'static [u8]| Unsigned {
        payload: Payload { data: Bytes::from_static(data), ..transfer(nonce).payload },
        gas_limit: Gas(60_000),
        ..transfer(nonce)
    };
    let legacy = Fees::Legacy { gas_price: GasPrice(3_000_000_000) };
    let unsigned = [
        transfer(0),
        with_data(1, &[0, 1, 2]),
        with_data(2, &[7; 400]),
        Unsigned { fees: legacy, ..transfer(3) },
    ];
    let mut attempts = Vec::new();
    for unsigned in &unsigned {
        attempts.push(attempt(unsigned).await);
    }
    let block = mined_together(&chain, node, &attempts).await;
    let hashes: Vec<B256> = attempts.iter().map(|attempt| attempt.hash).collect();
    let fetched: Vec<Receipt> = chain.receipts(&hashes).await.unwrap().into_iter().flatten().collect();
    let mut proven = chain.proven_receipts(block.hash).await.unwrap();
    proven.sort_by_key(|receipt| hashes.iter().position(|hash| *hash == receipt.hash));
    assert_eq!(proven, fetched);
    assert_eq!(chain.proven_receipts(block.hash).await, None, "once is enough");
}

pub(crate) async fn other_blocks_prove_nothing(node: &impl EthNode) {
    let (chain, stranger) = (chain_of(node.url()), chain_of(node.url()));
    assert_eq!(chain.proven_receipts(B256::repeat_byte(7)).await, None);

    // Somebody else's is among them.
    let attempts = transfers(0..3, Route::Public).await;
    stranger.send(&[&attempts[0]]).await;
    let block = mined_together(&chain, node, &attempts[1..]).await;
    assert_eq!(chain.proven_receipts(block.hash).await, None);

    // One runs code.
    let init = Bytes::from(deploying(&reverting("only on Sundays")));
    let create = Payload { data: init, ..Payload::default() };
    let create = attempt(&Unsigned { payload: create, gas_limit: Gas(500_000), ..transfer(3) }).await;
    let block = mined_together(&chain, node, std::slice::from_ref(&create)).await;
    assert_eq!(chain.proven_receipts(block.hash).await, None);
    let to = receipt_of(&chain, create.hash).await.contract_address;
    let call = Payload { to, ..Payload::default() };
    let failing = attempt(&Unsigned { payload: call, gas_limit: Gas(100_000), ..transfer(4) }).await;
    let attempts = [failing, attempt(&transfer(5)).await];
    let block = mined_together(&chain, node, &attempts).await;
    assert_eq!(chain.proven_receipts(block.hash).await, None);

    // A transfer that runs out of gas costs what a good one costs, were it given just that: the root tells them apart.
    let tight =
        Unsigned { payload: Payload { to, ..Payload::default() }, gas_limit: Gas(21_000), ..transfer(6) };
    let tight = attempt(&tight).await;
    let block = mined_together(&chain, node, std::slice::from_ref(&tight)).await;
    assert_eq!(chain.proven_receipts(block.hash).await, None);
    assert!(!receipt_of(&chain, tight.hash).await.succeeded);
}

/// Code that reverts with `Error(text)`.
fn reverting(text: &str) -> Vec<u8> {
    let mut word = [0; 32];
    word[..text.len()].copy_from_slice(text.as_bytes());
    let length = u8::try_from(text.len()).unwrap();
    let selector = hex!("6308c379a060e01b600052").to_vec();
    let rest = [&hex!("6020600452")[..], &[0x60, length], &hex!("602452"), &[0x7f], &word].concat();
    [selector, rest, hex!("60445260646000fd").to_vec()].concat()
}

/// Init code that leaves `code` behind.
fn deploying(code: &[u8]) -> Vec<u8> {
    let length = u8::try_from(code.len()).unwrap();
    [&[0x60, length, 0x80][..], &hex!("600b6000396000f3"), code].concat()
}

pub(crate) async fn estimates_tell_apart(node: &impl EthNode) {
    let chain = chain_of(node.url());
    let estimate = async |payload: &Payload| chain.estimate(&account(), payload).await.unwrap();
    assert_eq!(estimate(&transfer(0).payload).await, Estimate::Gas(Gas(21_000)));

    let init = Bytes::from(deploying(&reverting("only on Sundays")));
    let create = Payload { data: init, ..Payload::default() };
    let Estimate::Gas(gas_limit) = estimate(&create).await else { panic!("it deploys") };
    let unsigned = Unsigned { payload: create, gas_limit, ..transfer(0) };
    let deployment = attempt(&unsigned).await;
    assert_eq!(chain.send(&[&deployment]).await, [SendOutcome::Accepted]);
    let receipt = receipt_of(&chain, deployment.hash).await;
    assert!(receipt.succeeded);

    let call = Payload { to: receipt.contract_address, ..Payload::default() };
    let Estimate::Reverts { reason, at } = estimate(&call).await else { panic!("it reverts") };
    assert_eq!(reason.as_str(), "only on Sundays");
    assert_eq!(at, chain.head().await.unwrap().this);

    // With data, or the node takes it for a plain transfer and does not look at the balance.
    let data = Bytes::from_static(&[1]);
    let rich = Payload { value: Wei(U256::MAX >> 8), data, ..transfer(0).payload };
    let poor = estimate(&rich).await;
    assert!(matches!(poor, Estimate::Unaffordable { .. }), "{poor:?}");

    let used = Unsigned { payload: call, gas_limit: Gas(100_000), ..transfer(1) };
    let failing = attempt(&used).await;
    assert_eq!(chain.send(&[&failing]).await, [SendOutcome::Accepted]);
    assert!(!receipt_of(&chain, failing.hash).await.succeeded);
}

pub(crate) async fn balances_are_ours_to_read(node: &impl EthNode) {
    let ten_thousand = U256::from(10_000) * U256::from(10).pow(U256::from(18));
    assert_eq!(chain_of(node.url()).balance(&account()).await, Ok(Wei(ten_thousand)));
}

pub(crate) async fn quotes_follow_the_base_fee(node: &impl EthNode) {
    let proxy = RpcProxy::start(node.url()).unwrap();
    let chain = chain_of(proxy.url());
    let base_fee = chain.head().await.unwrap().base_fee.unwrap();
    let quote = chain.quote(&Options::default()).await.unwrap();
    assert_eq!(quote.base_fee, Some(base_fee));
    let Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas } = quote.fees else { panic!("{quote:?}") };
    assert!(max_fee_per_gas > base_fee && max_fee_per_gas >= max_priority_fee_per_gas);
    for _ in 0..50 {
        chain.quote(&Options::default()).await.unwrap();
    }
    assert!(proxy.calls("eth_feeHistory") <= 3, "{}", proxy.calls("eth_feeHistory"));
    let wished = Options {
        fees: FeeWishes { gas_price: Some(GasPrice(7)), ..FeeWishes::default() },
        ..Options::default()
    };
    assert_eq!(chain.quote(&wished).await.unwrap().fees, Fees::Legacy { gas_price: GasPrice(7) });

    let attempt = attempt(&Unsigned { fees: quote.fees, ..transfer(0) }).await;
    assert_eq!(chain.send(&[&attempt]).await, [SendOutcome::Accepted]);
    assert!(receipt_of(&chain, attempt.hash).await.succeeded);
}

#[tokio::test]
async fn a_chain_keeps_its_promises() {
    keeps_its_promises(&patient_node().await).await;
}

#[tokio::test]
async fn pending_counts_run_ahead_of_latest() {
    pending_runs_ahead(&patient_node().await).await;
}

#[tokio::test]
async fn many_go_out_in_order_in_few_requests() {
    many_go_out_in_few_requests(&patient_node().await).await;
}

#[tokio::test]
async fn a_block_of_our_transfers_proves_their_receipts() {
    a_block_of_transfers_proves_its_receipts(&patient_node().await).await;
}

#[tokio::test]
async fn a_block_with_anything_else_proves_nothing() {
    other_blocks_prove_nothing(&patient_node().await).await;
}

#[tokio::test]
async fn estimates_tell_gas_from_reverts_from_poverty() {
    estimates_tell_apart(&eager_node().await).await;
}

#[tokio::test]
async fn balances_are_read() {
    balances_are_ours_to_read(&eager_node().await).await;
}

#[tokio::test]
async fn quotes_follow_the_base_fee_and_a_burst_costs_one_call() {
    quotes_follow_the_base_fee(&eager_node().await).await;
}

#[tokio::test]
async fn refusals_of_anvil_have_their_class() {
    let node = patient_node().await;
    let chain = chain_of(node.url());
    let mut rich = transfer(0);
    rich.payload.value = Wei(U256::MAX >> 8);
    let mut cheap = transfer(0);
    cheap.fees = Fees::Legacy { gas_price: GasPrice(1) };
    let mut tight = transfer(0);
    tight.gas_limit = Gas(20_000);
    let mut wide = transfer(0);
    wide.gas_limit = Gas(1 << 40);
    wide.fees = Fees::Legacy { gas_price: GasPrice(2_000_000_000) };
    for (unsigned, code) in
        [(rich, "insufficient-funds"), (cheap, "below-base-fee"), (tight, "invalid"), (wide, "unavailable")]
    {
        let outcome = chain.send(&[&attempt(&unsigned).await]).await.remove(0);
        assert_eq!(outcome.code(), code, "{outcome:?}");
    }
    let mut dear = transfer(0);
    dear.fees = Fees::Legacy { gas_price: GasPrice(50_000_000_000) };
    assert_eq!(chain.send(&[&attempt(&dear).await]).await, [SendOutcome::Accepted]);
    assert_eq!(chain.send(&[&attempt(&transfer(0)).await]).await, [SendOutcome::ReplacementUnderpriced]);
    assert_eq!(chain.unknown_texts().total(), 0);
}

#[tokio::test]
async fn a_chain_from_before_eip1559_gets_legacy_prices() {
    let extra_args = vec!["--hardfork".into(), "istanbul".into()];
    let node = Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap();
    let chain = chain_of(node.url());
    let quote = chain.quote(&Options::default()).await.unwrap();
    assert_eq!(quote.base_fee, None);
    let Fees::Legacy { gas_price } = quote.fees else { panic!("{quote:?}") };
    assert!(gas_price.0 > 0);
}
