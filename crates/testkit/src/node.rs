//! What tests ask of any Ethereum node, so that one body can be run on each of them.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Result, anvil::Anvil, geth::Geth};

/// A running node.
pub trait EthNode: Send + Sync {
    /// Where it answers JSON-RPC over HTTP.
    fn url(&self) -> String;

    /// Mines so many blocks, the first with what its pool holds.
    fn mine(&self, blocks: u64) -> impl Future<Output = Result<()>> + Send;

    /// Calls one method and returns its result.
    fn rpc(&self, method: &str, params: Value) -> impl Future<Output = Result<Value>> + Send;
}

impl EthNode for Anvil {
    fn url(&self) -> String {
        Self::url(self)
    }

    async fn mine(&self, blocks: u64) -> Result<()> {
        Self::rpc(self, "anvil_mine", json!([format!("{blocks:#x}")])).await.map(drop)
    }

    async fn rpc(&self, method: &str, params: Value) -> Result<Value> {
        Self::rpc(self, method, params).await
    }
}

impl EthNode for Geth {
    fn url(&self) -> String {
        Self::url(self)
    }

    async fn mine(&self, blocks: u64) -> Result<()> {
        Self::mine(self, blocks).await
    }

    async fn rpc(&self, method: &str, params: Value) -> Result<Value> {
        Self::rpc(self, method, params).await
    }
}

impl<N: EthNode> EthNode for Arc<N> {
    fn url(&self) -> String {
        N::url(self)
    }

    async fn mine(&self, blocks: u64) -> Result<()> {
        N::mine(self, blocks).await
    }

    async fn rpc(&self, method: &str, params: Value) -> Result<Value> {
        N::rpc(self, method, params).await
    }
}
