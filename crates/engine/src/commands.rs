//! Commands from outside, up to the row that a lane executes: what is certainly useless is refused here, everything
//! else is the lane's word, because only the lane sees the transaction as it is when the command's turn comes.

use std::time::Duration;

use gapless_core::bump::{Bid, Dearest, Multiplier, outbid};
use gapless_core::command::{CommandEnd, Verb};
use gapless_core::fees::{FeeCaps, FeeWishes, Fees, GasPrice};
use gapless_core::ids::CommandId;
use gapless_core::intent::{Intent, Options, Payload};
use gapless_core::record::TxRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::handle::{Handle, Refusal};

/// How long a wait for a command's end sleeps between looks: lanes of other nodes do not signal here.
const LOOK: Duration = Duration::from_millis(50);

/// What should happen to a transaction that does not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// Send the same bytes now.
    Retry,
    /// Pay more.
    Bump,
    /// Let a placeholder take the nonce.
    Placeholder,
    /// Stop the submitter.
    Protect,
}

impl Handle {
    /// Asks for a transaction's withdrawal.
    pub async fn cancel(&self, tx: &TxRecord, actor: &str) -> Result<CommandId, Refusal> {
        self.about_tx(tx, Verb::Cancel, json!({}), actor).await
    }

    /// Asks for another payload, or other fees, in a transaction's place.
    pub async fn replace(
        &self,
        tx: &TxRecord,
        payload: Option<Payload>,
        fees: Option<FeeWishes>,
        actor: &str,
    ) -> Result<CommandId, Refusal> {
        not_final(tx)?;
        let options = Options { fees: fees.unwrap_or(tx.options().fees), ..tx.options() };
        let wanted = payload.as_ref().unwrap_or(tx.payload()).clone();
        Intent { payload: wanted, options }.check()?;
        if let (Some(nonce), Some(wishes)) = (tx.facts.nonce.filter(|_| tx.facts.state.is_bound()), fees) {
            let attempts = self.store.attempts(&tx.request.submitter, nonce, nonce.next()).await?;
            outbids(Dearest::of(&attempts), wishes)?;
        }
        let mut args = Map::new();
        if let Some(payload) = payload {
            args.insert("payload".to_owned(), json!(payload));
        }
        if let Some(fees) = fees {
            args.insert("fees".to_owned(), json!(fees));
        }
        self.about_tx(tx, Verb::Replace, Value::Object(args), actor).await
    }

    /// Asks for a decision about a transaction that does not move.
    pub async fn resolve(
        &self,
        tx: &TxRecord,
        action: Resolution,
        actor: &str,
    ) -> Result<CommandId, Refusal> {
        self.about_tx(tx, Verb::Resolve, json!({ "action": action }), actor).await
    }

    async fn about_tx(
        &self,
        tx: &TxRecord,
        verb: Verb,
        args: Value,
        actor: &str,
    ) -> Result<CommandId, Refusal> {
        not_final(tx)?;
        self.command(&tx.request.submitter, Some(tx.tx_id()), verb, args, actor).await
    }

    /// How a command ended; none while it waits for its lane.
    pub async fn command_end(&self, id: CommandId) -> Result<Option<CommandEnd>, Refusal> {
        Ok(self.store.command_end(id).await?)
    }

    /// Waits for a command's end, at most so long.
    pub async fn command_ended(&self, id: CommandId, most: Duration) -> Result<Option<CommandEnd>, Refusal> {
        let deadline = self.clock.tick().plus(most);
        loop {
            let end = self.command_end(id).await?;
            if end.is_some() || self.clock.tick() >= deadline {
                return Ok(end);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn not_final(tx: &TxRecord) -> Result<(), Refusal> {
    match tx.facts.state {
        state if state.is_terminal() => Err(Refusal::AlreadyFinal(state)),
        _ => Ok(()),
    }
}

/// Whether fees asked for would take the slot's place in a pool. A component that was not given is quoted from the
/// market later, so only what was given is judged.
fn outbids(dearest: Option<Dearest>, wishes: FeeWishes) -> Result<(), Refusal> {
    let Some(dearest) = dearest else { return Ok(()) };
    if dearest.admits(wishes) {
        return Ok(());
    }
    let nothing = Fees::Dynamic { max_fee_per_gas: GasPrice(0), max_priority_fee_per_gas: GasPrice(0) };
    let (total, tip) = match outbid(dearest, nothing, Multiplier(1_000_000), &FeeCaps::default()) {
        Bid::To(least) => (least.ceiling(), least.tip()),
        Bid::AtCap { needed, .. } => (needed, needed),
    };
    Err(Refusal::FeeTooLow { total, tip })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_component_that_was_given_is_judged() {
        let dearest = Some(Dearest { ceiling: GasPrice(100), tip: GasPrice(10) });
        let wishes = |total: Option<u128>, tip: Option<u128>, legacy: Option<u128>| FeeWishes {
            max_fee_per_gas: total.map(GasPrice),
            max_priority_fee_per_gas: tip.map(GasPrice),
            gas_price: legacy.map(GasPrice),
        };
        let low = Err(Refusal::FeeTooLow { total: GasPrice(110), tip: GasPrice(11) });
        for (asked, expected) in [
            (wishes(Some(110), Some(11), None), Ok(())),
            (wishes(Some(109), Some(11), None), low.clone()),
            (wishes(Some(110), Some(10), None), low.clone()),
            (wishes(Some(110), None, None), Ok(())),
            (wishes(Some(109), None, None), low.clone()),
            (wishes(None, Some(11), None), Ok(())),
            (wishes(None, Some(10), None), low.clone()),
            (wishes(None, None, Some(110)), Ok(())),
            (wishes(None, None, Some(109)), low),
        ] {
            assert_eq!(outbids(dearest, asked), expected, "{asked:?}");
            assert_eq!(outbids(None, asked), Ok(()), "a slot without bytes has nothing to outbid");
        }
    }
}
