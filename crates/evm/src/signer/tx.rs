//! From a decision to bytes: which transaction type, and how it is encoded and named.

use alloy_consensus::transaction::SignableTransaction;
use alloy_consensus::{Transaction, TxEip1559, TxEip2930, TxEnvelope, TxLegacy, TxType, TypedTransaction};
use alloy_eips::eip2718::{Decodable2718, Encodable2718};
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_primitives::{B256, Signature, TxKind, keccak256};
use gapless_core::fees::{Fees, Gas, GasPrice, Wei};
use gapless_core::ids::Nonce;
use gapless_core::intent::Payload;
use gapless_core::ports::chain::{Contents, Opened, Signed, Unsigned};

use super::key;

/// The transaction that was decided on. None: not an EVM submitter.
///
/// Dynamic fees make it type 2; a legacy price with an access list type 1; else a legacy one with its
/// chain id (EIP-155).
pub(super) fn build(unsigned: &Unsigned) -> Option<TypedTransaction> {
    let chain_id = unsigned.submitter.chain().evm()?;
    let (nonce, gas_limit) = (unsigned.nonce.0, unsigned.gas_limit.0);
    let payload = &unsigned.payload;
    let to = payload.to.map_or(TxKind::Create, TxKind::Call);
    let (value, input) = (payload.value.0, payload.data.clone());
    let item = |item: &gapless_core::intent::AccessListItem| AccessListItem {
        address: item.address,
        storage_keys: item.storage_keys.clone(),
    };
    let access_list = AccessList(payload.access_list.iter().map(item).collect());
    Some(match unsigned.fees {
        Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas } => TypedTransaction::Eip1559(TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee_per_gas.0,
            max_priority_fee_per_gas: max_priority_fee_per_gas.0,
            to,
            value,
            access_list,
            input,
        }),
        Fees::Legacy { gas_price } if !access_list.is_empty() => TypedTransaction::Eip2930(TxEip2930 {
            chain_id,
            nonce,
            gas_price: gas_price.0,
            gas_limit,
            to,
            value,
            access_list,
            input,
        }),
        Fees::Legacy { gas_price } => TypedTransaction::Legacy(TxLegacy {
            chain_id: Some(chain_id),
            nonce,
            gas_price: gas_price.0,
            gas_limit,
            to,
            value,
            input,
        }),
    })
}

/// What is signed.
pub(super) fn digest(tx: &TypedTransaction) -> B256 {
    tx.signature_hash()
}

/// The bytes and their name.
pub(super) fn encode(tx: TypedTransaction, signature: Signature) -> Signed {
    let raw = TxEnvelope::from(tx.into_signed(signature)).encoded_2718();
    Signed { hash: keccak256(&raw), raw: raw.into() }
}

/// Reads signed bytes; all of them must belong to it.
pub(super) fn decode(raw: &[u8]) -> Option<TxEnvelope> {
    let mut rest = raw;
    let tx = TxEnvelope::decode_2718(&mut rest).ok()?;
    rest.is_empty().then_some(tx)
}

/// For which chain bytes were signed, if they say so and can be read.
pub(crate) fn chain_id(raw: &[u8]) -> Option<u64> {
    decode(raw)?.chain_id()
}

/// What signed bytes carry, if they can be read.
pub(crate) fn contents(raw: &[u8]) -> Option<Contents> {
    Some(carried(&decode(raw)?))
}

/// Everything signed bytes say, if they can be read. Those that carry more than a payload can (blobs, authorizations) are not
/// taken: what they do could not be made again under another nonce, and a blob's bytes do not hash to its name.
pub(crate) fn opened(raw: &[u8]) -> Option<Opened> {
    let tx = decode(raw)?;
    if !matches!(tx.tx_type(), TxType::Legacy | TxType::Eip2930 | TxType::Eip1559) {
        return None;
    }
    let fees = match (tx.gas_price(), tx.max_priority_fee_per_gas()) {
        (Some(price), _) => Fees::Legacy { gas_price: GasPrice(price) },
        (None, tip) => Fees::Dynamic {
            max_fee_per_gas: GasPrice(tx.max_fee_per_gas()),
            max_priority_fee_per_gas: GasPrice(tip.unwrap_or_default()),
        },
    };
    Some(Opened {
        hash: *tx.tx_hash(),
        chain: tx.chain_id().and_then(|id| format!("eip155:{id}").parse().ok()),
        sender: key::recover(tx.signature(), tx.signature_hash()),
        nonce: Nonce(tx.nonce()),
        contents: carried(&tx),
        fees,
    })
}

fn carried(tx: &TxEnvelope) -> Contents {
    let item = |item: &AccessListItem| gapless_core::intent::AccessListItem {
        address: item.address,
        storage_keys: item.storage_keys.clone(),
    };
    let access_list = tx.access_list().map(|list| list.iter().map(item).collect()).unwrap_or_default();
    let payload = Payload {
        to: tx.to(),
        value: Wei(tx.value()),
        data: tx.input().clone(),
        gas_limit: None,
        access_list,
    };
    Contents { payload, gas_limit: Gas(tx.gas_limit()) }
}
