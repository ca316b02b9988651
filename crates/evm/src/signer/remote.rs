//! A signer elsewhere, spoken to as Web3signer is: `eth_signTransaction`, one call per transaction.
//!
//! It holds the key, so it could sign anything. What it returns counts only if it is, byte for byte,
//! the transaction that was asked for under a signature of the account that was asked for.

use std::fmt::Debug;
use std::time::Duration;

use alloy_consensus::{Transaction, TypedTransaction};
use alloy_primitives::{Address, Bytes};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use gapless_core::ports::chain::{Signed, Unsigned};
use gapless_core::ports::signer::{SignError, Signer};
use gapless_core::text::NodeText;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SignerError, key, tx};
use crate::decode;
use crate::quantity::hex;
use crate::rpc::endpoint::Http;
use crate::rpc::{Call, RpcError, TroubleKind, wire};

/// Where a remote signer is.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Its address (`http://` or `https://`).
    pub url: String,
    /// The account it signs for.
    pub address: Address,
    /// How long one signature may take.
    pub timeout: Duration,
    /// Most signatures asked for at once.
    pub max_in_flight: usize,
}

impl RemoteOptions {
    /// Ten seconds, eight at once.
    #[must_use]
    pub fn new(url: impl Into<String>, address: Address) -> Self {
        Self { url: url.into(), address, timeout: Duration::from_secs(10), max_in_flight: 8 }
    }
}

/// The address may carry a key.
impl Debug for RemoteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("address", &self.address)
            .field("timeout", &self.timeout)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

/// Signs through a service.
#[derive(Debug)]
pub struct RemoteSigner {
    http: Http,
    address: Address,
    at_once: usize,
}

impl RemoteSigner {
    /// Sets it up. Asks nobody yet.
    pub fn new(options: &RemoteOptions) -> Result<Self, SignerError> {
        let at_once = options.max_in_flight.max(1);
        let http = Http::new(&options.url, 1, options.timeout, at_once).map_err(SignerError::Remote)?;
        Ok(Self { http, address: options.address, at_once })
    }

    /// For whom it signs.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    async fn sign_one(&self, unsigned: &Unsigned) -> Result<Signed, SignError> {
        let refused = |text: &str| SignError::Refused(NodeText::new(text));
        if unsigned.submitter.address() != Some(self.address) {
            let text = format!("the signer of {} cannot sign for {}", self.address, unsigned.submitter);
            return Err(refused(&text));
        }
        let wanted = tx::build(unsigned).ok_or_else(|| refused("not an account of an EVM chain"))?;
        let calls = [Call::new("eth_signTransaction", json!([request(self.address, &wanted)]))];
        let unavailable = |text: String| SignError::Unavailable(NodeText::new(&text));
        let replies = self.http.exchange(&calls).await.map_err(|trouble| match trouble.kind {
            // Web3signer answers what it will not sign with an HTTP status.
            TroubleKind::Status { status: 400..=407 | 409..=428, .. } => refused(&trouble.text),
            _ => unavailable(trouble.text),
        })?;
        match replies.into_iter().next() {
            Some(Ok(raw)) => {
                let answer: Answer = decode::required(&raw).map_err(|trouble| tampered(&trouble.text))?;
                compare(&wanted, &answer.raw(), self.address)
            }
            Some(Err(RpcError::Node(error))) if wire::is_throttled(&error) => {
                Err(unavailable(error.to_string()))
            }
            Some(Err(RpcError::Node(error))) => Err(refused(&error.to_string())),
            Some(Err(RpcError::Trouble(trouble))) => Err(unavailable(trouble.text)),
            None => Err(unavailable("no answer".to_owned())),
        }
    }
}

fn tampered(text: &str) -> SignError {
    SignError::Tampered(NodeText::new(text))
}

/// Web3signer returns the bytes; others wrap them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Bare(Bytes),
    Wrapped { raw: Bytes },
}

impl Answer {
    fn raw(self) -> Bytes {
        match self {
            Self::Bare(raw) | Self::Wrapped { raw } => raw,
        }
    }
}

fn request(from: Address, wanted: &TypedTransaction) -> Value {
    let mut request = json!({
        "from": from,
        "chainId": wanted.chain_id().map(hex),
        "nonce": hex(wanted.nonce()),
        "gas": hex(wanted.gas_limit()),
        "value": hex(wanted.value()),
        "data": wanted.input(),
    });
    if let Some(to) = wanted.to() {
        request["to"] = json!(to);
    }
    match (wanted.gas_price(), wanted.max_priority_fee_per_gas()) {
        (Some(price), _) => request["gasPrice"] = json!(hex(price)),
        (None, tip) => {
            request["maxFeePerGas"] = json!(hex(wanted.max_fee_per_gas()));
            request["maxPriorityFeePerGas"] = json!(hex(tip.unwrap_or_default()));
        }
    }
    if let Some(list) = wanted.access_list().filter(|list| !list.is_empty()) {
        let item = |item: &alloy_eips::eip2930::AccessListItem| json!({ "address": item.address, "storageKeys": item.storage_keys });
        request["accessList"] = list.iter().map(item).collect();
    }
    request
}

/// Believes signed bytes only if they are the wanted transaction under the account's signature.
fn compare(wanted: &TypedTransaction, raw: &[u8], account: Address) -> Result<Signed, SignError> {
    let found = tx::decode(raw).ok_or_else(|| tampered("what came back is no signed transaction"))?;
    let same = |field: &str, wanted: &dyn Debug, found: &dyn Debug| {
        let (wanted, found) = (format!("{wanted:?}"), format!("{found:?}"));
        if wanted == found {
            return Ok(());
        }
        let cut = |text: String| text.chars().take(100).collect::<String>();
        Err(tampered(&format!("{field} is {}, asked was {}", cut(found), cut(wanted))))
    };
    same("type", &u8::from(wanted.tx_type()), &u8::from(found.tx_type()))?;
    same("chain id", &wanted.chain_id(), &found.chain_id())?;
    same("nonce", &wanted.nonce(), &found.nonce())?;
    same("to", &wanted.kind(), &found.kind())?;
    same("value", &wanted.value(), &found.value())?;
    same("data", wanted.input(), found.input())?;
    same("gas", &wanted.gas_limit(), &found.gas_limit())?;
    same("gas price", &wanted.gas_price(), &found.gas_price())?;
    same("max fee", &wanted.max_fee_per_gas(), &found.max_fee_per_gas())?;
    same("max priority fee", &wanted.max_priority_fee_per_gas(), &found.max_priority_fee_per_gas())?;
    same("access list", &wanted.access_list(), &found.access_list())?;
    let signature = *found.signature();
    same("sender", &Some(account), &key::recover(&signature, tx::digest(wanted)))?;
    let signed = tx::encode(wanted.clone(), signature);
    if *signed.raw != *raw {
        return Err(tampered("the bytes are not the canonical encoding"));
    }
    Ok(signed)
}

#[async_trait]
impl Signer for RemoteSigner {
    async fn sign(&self, unsigned: &[Unsigned]) -> (Vec<Signed>, Option<SignError>) {
        let one = |unsigned: &Unsigned| {
            let unsigned = unsigned.clone();
            async move { self.sign_one(&unsigned).await }
        };
        let answers: Vec<_> = unsigned.iter().map(one).collect();
        let mut answers = stream::iter(answers).buffered(self.at_once);
        let mut signed = Vec::with_capacity(unsigned.len());
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(one) => signed.push(one),
                Err(error) => return (signed, Some(error)),
            }
        }
        (signed, None)
    }

    fn can_fill_slots(&self) -> bool {
        true
    }
}
