//! Whether the chain shows every request once, and every account's nonces without a hole.
//!
//! Each request carries a mark in its call data, so that a second copy of one cannot make up for a lost other.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes};
use anyhow::ensure;

use super::ledger::Mined;

/// Where the coins go: nowhere.
pub(super) const SINK: Address = Address::repeat_byte(0xde);
/// Enough for a transfer with a mark.
pub(super) const GAS: u64 = 30_000;

/// What was asked for: requests `0..count`, dealt out to the accounts in turn.
pub(super) struct Asked<'a> {
    pub(super) accounts: &'a [Address],
    pub(super) count: u64,
}

/// Transactions per block of an account, from its first block to its last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PerBlock {
    /// The mean over accounts.
    pub(super) mean: f64,
    /// Of the slowest.
    pub(super) least: f64,
}

/// What a request carries.
pub(super) fn mark(request: u64) -> Bytes {
    Bytes::copy_from_slice(&request.to_be_bytes())
}

/// Fails unless these transactions, and no others, are on the chain, each once. A hash names sender, nonce and mark.
pub(super) fn each_once(mut sent: Vec<B256>, mut mined: Vec<B256>) -> anyhow::Result<()> {
    sent.sort_unstable();
    mined.sort_unstable();
    ensure!(sent == mined, "the chain does not show each of the {} transactions once", sent.len());
    Ok(())
}

/// Fails unless the accounts' transactions are exactly those asked for.
pub(super) fn check(asked: &Asked<'_>, mined: &[Mined]) -> anyhow::Result<PerBlock> {
    let mut found: BTreeMap<Address, Vec<&Mined>> =
        asked.accounts.iter().map(|account| (*account, Vec::new())).collect();
    for tx in mined {
        if let Some(of_account) = found.get_mut(&tx.from) {
            of_account.push(tx);
        }
    }
    let mut rates = Vec::new();
    for (at, account) in asked.accounts.iter().enumerate() {
        let of_account = found.remove(account).unwrap_or_default();
        rates.push(per_block(&of_account));
        one(asked, at as u64, account, &of_account)?;
    }
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    Ok(PerBlock { mean, least: rates.iter().copied().fold(f64::INFINITY, f64::min) })
}

fn one(asked: &Asked<'_>, at: u64, account: &Address, mined: &[&Mined]) -> anyhow::Result<()> {
    let step = asked.accounts.len();
    let expected: Vec<Bytes> = (at..asked.count).step_by(step).map(mark).collect();
    ensure!(
        mined.iter().enumerate().all(|(nonce, tx)| tx.nonce == nonce as u64),
        "the nonces of {account} are not contiguous on the chain"
    );
    ensure!(
        mined.len() == expected.len(),
        "the chain shows {} transactions of {account}, {} were asked for",
        mined.len(),
        expected.len()
    );
    let mut marks: Vec<&Bytes> = mined.iter().map(|tx| &tx.input).collect();
    marks.sort();
    ensure!(
        marks.into_iter().eq(&expected),
        "the transactions of {account} on the chain are not each of its requests once"
    );
    ensure!(mined.iter().all(|tx| tx.succeeded), "a transaction of {account} failed on the chain");
    Ok(())
}

fn per_block(mined: &[&Mined]) -> f64 {
    match (mined.first(), mined.last()) {
        (Some(first), Some(last)) => mined.len() as f64 / (last.block - first.block + 1) as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: [Address; 2] = [Address::repeat_byte(1), Address::repeat_byte(2)];

    /// Five requests of two accounts, three blocks apart for the second.
    fn chain() -> Vec<Mined> {
        let tx = |block, account: usize, nonce, request| Mined {
            block,
            from: ACCOUNTS[account],
            nonce,
            input: mark(request),
            succeeded: true,
        };
        vec![tx(5, 0, 0, 0), tx(5, 1, 0, 3), tx(6, 0, 1, 4), tx(6, 0, 2, 2), tx(8, 1, 1, 1)]
    }

    fn said(mined: &[Mined]) -> String {
        let asked = Asked { accounts: &ACCOUNTS, count: 5 };
        check(&asked, mined).map_or_else(|error| error.to_string(), |rates| format!("{rates:?}"))
    }

    #[test]
    fn every_request_once_in_any_order_is_right() {
        assert_eq!(said(&chain()), "PerBlock { mean: 1.0, least: 0.5 }");
    }

    #[test]
    fn hashes_must_be_there_once_each() {
        let hashes: Vec<B256> = (1..4).map(B256::repeat_byte).collect();
        let reversed: Vec<B256> = hashes.iter().rev().copied().collect();
        assert!(each_once(hashes.clone(), reversed).is_ok());
        assert!(each_once(hashes.clone(), hashes[1..].to_vec()).is_err());
        assert!(each_once(hashes.clone(), vec![hashes[0], hashes[1], hashes[1]]).is_err());
    }

    #[test]
    fn others_do_not_count() {
        let mut mined = chain();
        mined.push(Mined { block: 8, from: SINK, nonce: 7, input: mark(0), succeeded: false });
        assert!(said(&mined).starts_with("PerBlock"));
    }

    #[test]
    fn a_lost_request_a_second_copy_a_hole_and_a_failure_are_each_found() {
        let mut lost = chain();
        lost.pop();
        assert!(said(&lost).contains("1 transactions of"), "{}", said(&lost));
        let mut twice = chain();
        twice[3].input = mark(4);
        assert!(said(&twice).contains("each of its requests once"), "{}", said(&twice));
        let mut hole = chain();
        hole[4].nonce = 2;
        assert!(said(&hole).contains("not contiguous"), "{}", said(&hole));
        let mut failed = chain();
        failed[0].succeeded = false;
        assert!(said(&failed).contains("failed on the chain"), "{}", said(&failed));
    }
}
