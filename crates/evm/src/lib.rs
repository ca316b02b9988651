//! The chain and signer ports for EVM chains.
//!
//! Everything here answers one question about a world that lies: *what do we know now?* An answer is
//! typed by what it proves. `null` is an answer, a refusal is an answer, and silence is neither: bytes
//! whose answer was lost are *possibly sent*, and a read that failed says nothing about the chain.
//!
//! The JSON-RPC layer is our own, over one long-lived HTTP client per endpoint, and not a general
//! provider: batches are its native call form (a node takes a batch of 100 for little more than one
//! call), decoding skips what nobody reads (logs, bodies), and the difference between *refused*, *not
//! delivered* and *no answer* survives up to the caller. Transactions are built and decoded with
//! alloy's types; signing is libsecp256k1's.

mod chain;
mod classify;
mod decode;
mod estimate;
mod newest;
mod options;
mod proven;
mod quantity;
mod quote;
mod revert;
mod rpc;
mod send;
mod signer;
mod tags;
mod unknown;

pub use chain::EvmChain;
pub use classify::classify;
pub use options::{EvmError, EvmOptions};
pub use rpc::{Call, NodeError, Reply, RpcError, Trouble, TroubleKind};
pub use signer::{LocalSigner, RemoteOptions, RemoteSigner, SignerError};
pub use unknown::UnknownTexts;
