//! A node, a funded signer, and the bytes in between.

use std::time::Duration;

use alloy_primitives::{Address, B256, U256, address};
use gapless_core::attempt::{AttemptKind, NewAttempt, Route, StoredAttempt};
use gapless_core::fees::{Fees, Gas, GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::intent::Payload;
use gapless_core::ports::chain::{Chain, Receipt, Signed, Unsigned};
use gapless_core::ports::signer::Signer;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use gapless_evm::{EvmChain, EvmOptions, LocalSigner};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::wait::eventually;

pub(crate) const CHAIN: u64 = 31337;
pub(crate) const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
pub(crate) const ACCOUNT: Address = address!("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) const DYNAMIC: Fees = Fees::Dynamic {
    max_fee_per_gas: GasPrice(20_000_000_000),
    max_priority_fee_per_gas: GasPrice(1_000_000_000),
};

/// A node that mines each transaction as it comes.
pub(crate) async fn eager_node() -> Anvil {
    Anvil::start(AnvilOptions::default()).await.unwrap()
}

/// A node that mines when told.
pub(crate) async fn patient_node() -> Anvil {
    let options = AnvilOptions { extra_args: vec!["--no-mining".into()], ..AnvilOptions::default() };
    Anvil::start(options).await.unwrap()
}

pub(crate) fn options<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> EvmOptions {
    let recheck = Duration::from_millis(200);
    EvmOptions { timeout: Duration::from_secs(5), recheck, ..EvmOptions::new(CHAIN, urls) }
}

pub(crate) fn chain_of(url: impl Into<String>) -> EvmChain {
    EvmChain::new(&options([url])).unwrap()
}

pub(crate) fn account() -> SubmitterId {
    SubmitterId::evm(CHAIN, ACCOUNT)
}

pub(crate) fn transfer(nonce: u64) -> Unsigned {
    Unsigned {
        submitter: account(),
        nonce: Nonce(nonce),
        payload: Payload {
            to: Some(Address::repeat_byte(0xee)),
            value: Wei(U256::from(1)),
            ..Payload::default()
        },
        gas_limit: Gas(21_000),
        fees: DYNAMIC,
    }
}

pub(crate) async fn sign(unsigned: &[Unsigned]) -> Vec<Signed> {
    let signer = LocalSigner::from_hex(KEY, Some(ACCOUNT)).unwrap();
    let (signed, error) = signer.sign(unsigned).await;
    assert_eq!(error, None);
    signed
}

pub(crate) fn stored(unsigned: &Unsigned, signed: Signed, route: Route) -> StoredAttempt {
    let attempt = NewAttempt {
        nonce: unsigned.nonce,
        n: 0,
        tx_id: None,
        kind: AttemptKind::Payload,
        route,
        hash: signed.hash,
        raw: signed.raw,
        fees: unsigned.fees,
        next_send_at: Timestamp::from_micros(0),
    };
    StoredAttempt::read_from_store(attempt, Timestamp::from_micros(0), 0, None)
}

/// Signed transfers at these nonces.
pub(crate) async fn transfers(nonces: impl IntoIterator<Item = u64>, route: Route) -> Vec<StoredAttempt> {
    let unsigned: Vec<Unsigned> = nonces.into_iter().map(transfer).collect();
    let signed = sign(&unsigned).await;
    unsigned.iter().zip(signed).map(|(unsigned, signed)| stored(unsigned, signed, route)).collect()
}

pub(crate) async fn attempt(unsigned: &Unsigned) -> StoredAttempt {
    let signed = sign(std::slice::from_ref(unsigned)).await.remove(0);
    stored(unsigned, signed, Route::Public)
}

pub(crate) fn all(attempts: &[StoredAttempt]) -> Vec<&StoredAttempt> {
    attempts.iter().collect()
}

pub(crate) async fn receipt_of(chain: &dyn Chain, hash: B256) -> Receipt {
    let look = || async { chain.receipts(&[hash]).await.ok().and_then(|mut found| found.remove(0)) };
    eventually(SOON, "a receipt", look).await.unwrap()
}
