//! A lane in the test's hands: what a lane would write, without a chain.

use gapless_core::change::{Draft, Verdict};
use gapless_core::command::{Command, CommandEnd, CommandOutcome};
use gapless_core::ids::{CommandId, TxId};
use gapless_core::record::{TxFacts, TxRecord};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_testkit::fixtures::{self, Lane};
use serde_json::Value;

use crate::support::{ACCOUNT, Node, transfer};

pub(crate) struct Hand<'a> {
    node: &'a Node,
    lane: Lane,
}

pub(crate) fn account() -> SubmitterId {
    ACCOUNT.parse().unwrap()
}

/// Commands that wait for the lane.
pub(crate) async fn waiting(node: &Node) -> Vec<Command> {
    node.handle.store().take_commands(&account(), 100).await.unwrap()
}

/// The record of a transaction that the API named.
pub(crate) async fn record(node: &Node, tx_id: &str) -> TxRecord {
    node.handle.store().tx(TxId(tx_id.parse().unwrap())).await.unwrap().unwrap()
}

/// Accepted transfers, by their ids.
pub(crate) async fn accepted(node: &Node, names: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for name in names {
        let made = node.post("/api/v1/tx", transfer(name)).await;
        assert_eq!(made.status, 202, "{}", made.text);
        ids.push(made.body["txId"].as_str().unwrap().to_owned());
    }
    ids
}

impl<'a> Hand<'a> {
    pub(crate) async fn on(node: &'a Node) -> Self {
        let (owner, terms) = (fixtures::owner("lane", 7).unwrap(), fixtures::terms().unwrap());
        let lane = Lane::take(node.handle.store().as_ref(), &owner, &account(), &terms).await.unwrap();
        Self { node, lane: lane.unwrap() }
    }

    pub(crate) async fn write(&mut self, write: impl FnOnce(&mut Draft)) {
        let verdict = self.lane.commit(self.node.handle.store().as_ref(), write).await.unwrap();
        assert!(matches!(verdict, Verdict::Applied { .. }), "{verdict:?}");
    }

    /// Binds the first so many of the queue.
    pub(crate) async fn bind(&mut self, count: usize) {
        let queue = self.node.handle.store().peek_queue(&account(), count).await.unwrap();
        let writer = self.lane.clone();
        self.write(|draft| writer.bind(draft, &queue)).await;
    }

    async fn facts(&self, ids: &[String]) -> Vec<(TxId, TxFacts)> {
        let mut found = Vec::new();
        for id in ids {
            let tx = record(self.node, id).await;
            found.push((tx.tx_id(), tx.facts));
        }
        found
    }

    /// Mines these in a block.
    pub(crate) async fn mine(&mut self, ids: &[String], block: u64) {
        let (writer, facts) = (self.lane.clone(), self.facts(ids).await);
        self.write(|draft| writer.mine(draft, &facts, block)).await;
    }

    /// Ends these as CONFIRMED.
    pub(crate) async fn confirm(&mut self, ids: &[String]) {
        let (writer, facts) = (self.lane.clone(), self.facts(ids).await);
        self.write(|draft| writer.confirm(draft, &facts)).await;
    }

    /// Ends a command.
    pub(crate) async fn end(
        &mut self,
        id: CommandId,
        outcome: CommandOutcome,
        code: Option<&str>,
        result: Option<Value>,
    ) {
        let code = code.map(NodeText::new);
        self.write(|draft| draft.writes.commands = vec![CommandEnd { id, outcome, code, result }]).await;
    }
}
