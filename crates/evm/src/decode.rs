//! What nodes write, read into what the ports speak. Fields nobody needs are skipped unparsed; fields
//! that are needed must be there and well-formed, or the answer counts as none.

use alloy_primitives::{Address, B256};
use gapless_core::fees::{Gas, GasPrice};
use gapless_core::ports::chain::{Block, BlockRef, Receipt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::proven::Header;
use crate::quantity::Quantity;
use crate::rpc::Trouble;

/// As much of a malformed answer as a reader wants to see.
const MAX_SHOWN: usize = 200;

/// Reads a result that must be there.
pub(crate) fn required<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Trouble> {
    optional(raw)?.ok_or_else(|| Trouble::malformed("null where an answer must be"))
}

/// Reads a result that may be `null`.
pub(crate) fn optional<T: DeserializeOwned>(raw: &RawValue) -> Result<Option<T>, Trouble> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let shown: String = raw.get().chars().take(MAX_SHOWN).collect();
        Trouble::malformed(format!("a malformed answer ({error}): {shown}"))
    })
}

/// Only a block's hash.
#[derive(Debug, Deserialize)]
pub(crate) struct BlockHash {
    pub(crate) hash: B256,
}

/// Only a block's name.
#[derive(Debug, Deserialize)]
pub(crate) struct BlockName {
    number: Quantity<u64>,
    hash: B256,
}

impl BlockName {
    pub(crate) const fn named(&self) -> BlockRef {
        BlockRef { number: self.number.0, hash: self.hash }
    }
}

/// A block with the hashes of its transactions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireBlock {
    number: Quantity<u64>,
    hash: B256,
    parent_hash: B256,
    #[serde(default)]
    base_fee_per_gas: Option<Quantity<u128>>,
    gas_limit: Quantity<u64>,
    #[serde(default)]
    gas_used: Option<Quantity<u64>>,
    #[serde(default)]
    receipts_root: Option<B256>,
    transactions: Vec<B256>,
}

impl WireBlock {
    /// What it says of its receipts, where it has all that a proof needs.
    pub(crate) fn header(&self) -> Option<Header> {
        Some(Header {
            this: BlockRef { number: self.number.0, hash: self.hash },
            base_fee: self.base_fee_per_gas.map(|fee| GasPrice(fee.0)),
            gas_used: Gas(self.gas_used?.0),
            receipts_root: self.receipts_root?,
            transactions: self.transactions.clone(),
        })
    }
}

impl From<WireBlock> for Block {
    fn from(wire: WireBlock) -> Self {
        Self {
            this: BlockRef { number: wire.number.0, hash: wire.hash },
            parent: wire.parent_hash,
            base_fee: wire.base_fee_per_gas.map(|fee| GasPrice(fee.0)),
            gas_limit: Gas(wire.gas_limit.0),
            transactions: wire.transactions,
        }
    }
}

/// A block with as much of its transactions as tells who sent them.
#[derive(Debug, Deserialize)]
pub(crate) struct WireBody {
    pub(crate) hash: B256,
    pub(crate) transactions: Vec<WireSent>,
}

/// Who sent a transaction. Some chains' own transactions have no nonce.
#[derive(Debug, Deserialize)]
pub(crate) struct WireSent {
    pub(crate) hash: B256,
    pub(crate) from: Address,
    #[serde(default)]
    pub(crate) nonce: Option<Quantity<u64>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReceipt {
    transaction_hash: B256,
    #[serde(default)]
    block_number: Option<Quantity<u64>>,
    #[serde(default)]
    block_hash: Option<B256>,
    status: Quantity<u64>,
    gas_used: Quantity<u64>,
    #[serde(default)]
    effective_gas_price: Option<Quantity<u128>>,
    #[serde(default)]
    contract_address: Option<Address>,
}

/// The receipt of `hash`. One without a block belongs to a block that is still being built: not found.
pub(crate) fn receipt(raw: &RawValue, hash: B256) -> Result<Option<Receipt>, Trouble> {
    let Some(wire) = optional::<WireReceipt>(raw)? else { return Ok(None) };
    if wire.transaction_hash != hash {
        return Err(Trouble::malformed("the receipt of another transaction"));
    }
    mined(wire)
}

/// Reads all receipts of a block; `null` is *not found*.
pub(crate) fn block_receipts(raw: &RawValue, block: B256) -> Result<Option<Vec<Receipt>>, Trouble> {
    let Some(wire) = optional::<Vec<WireReceipt>>(raw)? else { return Ok(None) };
    let one = |wire: WireReceipt| match mined(wire)? {
        Some(receipt) if receipt.block.hash == block => Ok(receipt),
        _ => Err(Trouble::malformed("a receipt of another block")),
    };
    wire.into_iter().map(one).collect::<Result<_, _>>().map(Some)
}

fn mined(wire: WireReceipt) -> Result<Option<Receipt>, Trouble> {
    let hash = wire.transaction_hash;
    let (Some(Quantity(number)), Some(block)) = (wire.block_number, wire.block_hash) else { return Ok(None) };
    if block.is_zero() {
        return Ok(None);
    }
    let succeeded = match wire.status.0 {
        0 => false,
        1 => true,
        other => return Err(Trouble::malformed(format!("a receipt with status {other}"))),
    };
    Ok(Some(Receipt {
        hash,
        block: BlockRef { number, hash: block },
        succeeded,
        gas_used: Gas(wire.gas_used.0),
        // Chains before EIP-1559 do not tell; losing the receipt over it would be worse than a zero.
        effective_gas_price: GasPrice(wire.effective_gas_price.map_or(0, |price| price.0)),
        contract_address: wire.contract_address,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::quote::WireHistory;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn wire_receipt(change: impl FnOnce(&mut Value)) -> Result<Option<Receipt>, Trouble> {
        let hash = B256::repeat_byte(1);
        let mut value = json!({
            "transactionHash": hash, "blockNumber": "0x5", "blockHash": B256::repeat_byte(2),
            "status": "0x1", "gasUsed": "0x5208", "effectiveGasPrice": "0x7", "contractAddress": null,
            "logs": [{"anything": "at all"}],
        });
        change(&mut value);
        receipt(&raw(&value), hash)
    }

    #[test]
    fn a_receipt_is_read_and_null_is_none() {
        let found = wire_receipt(|_| ()).unwrap().unwrap();
        assert_eq!((found.block.number, found.succeeded, found.gas_used), (5, true, Gas(21_000)));
        assert_eq!(receipt(&raw(&Value::Null), B256::ZERO), Ok(None));
    }

    #[test]
    fn a_receipt_that_is_not_in_a_block_is_none() {
        assert_eq!(wire_receipt(|r| r["blockHash"] = Value::Null), Ok(None));
        assert_eq!(wire_receipt(|r| r["blockNumber"] = Value::Null), Ok(None));
        assert_eq!(wire_receipt(|r| r["blockHash"] = json!(B256::ZERO)), Ok(None));
    }

    #[test]
    fn a_receipt_of_another_transaction_or_with_odd_numbers_is_no_answer() {
        assert!(wire_receipt(|r| r["transactionHash"] = json!(B256::repeat_byte(9))).is_err());
        assert!(wire_receipt(|r| r["status"] = json!("0x2")).is_err());
        assert!(wire_receipt(|r| r["status"] = Value::Null).is_err());
        assert!(wire_receipt(|r| r["gasUsed"] = json!(21_000)).is_err());
    }

    proptest! {
        #[test]
        fn odd_fields_never_panic_a_decoder(text in "[ -~]{0,20}", field in 0usize..8, as_text in any::<bool>()) {
            const FIELDS: [&str; 8] = [
                "number", "hash", "transactions", "baseFeePerGas", "status", "blockNumber", "reward", "oldestBlock",
            ];
            let mut value = json!({
                "number": "0x1", "hash": B256::ZERO, "parentHash": B256::ZERO, "gasLimit": "0x1",
                "transactions": [], "transactionHash": B256::ZERO, "status": "0x1", "gasUsed": "0x1",
                "baseFeePerGas": ["0x1"], "gasUsedRatio": [0.5], "reward": [["0x1"]], "oldestBlock": "0x1",
            });
            value[FIELDS[field]] =
                if as_text { json!(text) } else { serde_json::from_str(&text).unwrap_or(Value::Null) };
            let raw = raw(&value);
            let _ = required::<WireBlock>(&raw);
            let _ = required::<WireBody>(&raw);
            let _ = required::<BlockName>(&raw);
            let _ = required::<WireHistory>(&raw);
            let _ = receipt(&raw, B256::ZERO);
        }
    }
}
