//! Facts that a human can check: hashes, figures, and what endpoints said.

use gapless_core::fees::Fees;
use gapless_core::record::Mined;
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;
use serde_json::{Value, json};

use super::summary::gwei;
use super::{Evidence, Scene, Standing};

/// A list of facts; what is not known is left out.
#[derive(Default)]
struct Facts(Vec<Evidence>);

impl Facts {
    fn add(&mut self, what: &'static str, value: impl Into<Option<Value>>) {
        if let Some(value) = value.into().filter(|value| !value.is_null()) {
            self.0.push(Evidence { what, value });
        }
    }
}

pub(super) fn of(scene: &Scene<'_>, standing: &Standing) -> Vec<Evidence> {
    let mut facts = Facts::default();
    let tx = &scene.tx.facts;
    facts.add("state", json!(tx.state));
    facts.add("nonce", tx.nonce.map(|nonce| json!(nonce)));
    if let Some(mined) = &tx.mined {
        block(&mut facts, scene, mined);
    } else if tx.state.is_bound() {
        pool(&mut facts, scene);
    } else if tx.state == TxState::Queued {
        queue(&mut facts, scene);
    }
    if let Some(amended) = &tx.amended {
        facts.add("withdrawal", amended.withdrawal.map(|withdrawal| json!(withdrawal)));
        facts.add("replaced payload", amended.payload.as_ref().map(|payload| json!(payload)));
        facts.add("fees asked for", amended.fees.map(|fees| json!(fees)));
        facts.add("last look into the pool", amended.diagnosis.as_ref().map(|diagnosis| json!(diagnosis)));
    }
    if let Standing::Waits(wait) = standing {
        of_wait(&mut facts, scene, wait);
    }
    facts.add("failure", tx.failure.as_ref().map(|failure| json!(failure)));
    facts.add("ended at", tx.ended_at.map(|at| json!(at)));
    if !tx.state.is_terminal() {
        facts.add("condition of the submitter", json!(scene.cursor.conditions.gravest()));
        facts.add("lane runs on", json!(scene.owner.unwrap_or("no node")));
    }
    facts.0
}

fn block(facts: &mut Facts, scene: &Scene<'_>, mined: &Mined) {
    facts.add("mined hash", json!(mined.hash));
    facts.add("mined as", json!(mined.mined_as));
    facts.add("block", json!(mined.block_number));
    facts.add("block hash", json!(mined.block_hash));
    let stands = scene.sight.at_mined.filter(|hash| *hash != mined.block_hash);
    facts.add("block that stands there now", stands.map(|hash| json!(hash)));
    facts.add("status", json!(if mined.succeeded { "succeeded" } else { "reverted" }));
    facts.add("head", scene.sight.head.map(|head| json!(head)));
}

fn pool(facts: &mut Facts, scene: &Scene<'_>) {
    facts.add("sent since", scene.tx.facts.bound_at.map(|at| json!(at)));
    facts.add("attempts", json!(scene.attempts.len()));
    if let Some(attempt) = scene.current() {
        facts.add("current hash", json!(attempt.hash));
        facts.add("current kind", json!(attempt.kind));
        facts.add("offered", json!(offered(attempt.fees)));
        facts.add("sent again", json!(attempt.resends));
        let refusal = attempt.refusal.as_ref();
        facts
            .add("last refusal", refusal.map(|refusal| json!(format!("{}: {}", refusal.code, refusal.text))));
    }
    facts.add("head", scene.sight.head.map(|head| json!(head)));
    facts.add("base fee", scene.sight.base_fee.map(|fee| json!(gwei(fee))));
    if let Some(exhibit) = scene.foreign {
        facts.add("foreign transaction", exhibit.hash.map(|hash| json!(hash)));
        facts.add("foreign block", json!(exhibit.block_number));
    }
}

fn offered(fees: Fees) -> String {
    match fees {
        Fees::Dynamic { max_fee_per_gas, max_priority_fee_per_gas } => {
            format!("at most {}, tip {}", gwei(max_fee_per_gas), gwei(max_priority_fee_per_gas))
        }
        Fees::Legacy { gas_price } => gwei(gas_price),
    }
}

fn queue(facts: &mut Facts, scene: &Scene<'_>) {
    facts.add("accepted at", json!(scene.tx.created_at));
    facts.add("valid until", scene.tx.request.intent.options.valid_until.map(|until| json!(until)));
    if let Some(run) = scene.cursor.run {
        facts.add("next nonce", json!(run.next));
        facts.add("open nonces", json!(run.open()));
        facts.add("not final nonces", json!(run.unresolved()));
    }
    facts.add("mode", json!(scene.settings.rules.mode));
    if let Some(in_flight) = scene.cursor.in_flight {
        facts.add("in flight", in_flight.tx_id.map(|tx_id| json!(tx_id)));
    }
    if let Some(first) = scene.first.filter(|first| first.tx_id() != scene.tx.tx_id()) {
        facts.add("first in the queue", json!(first.tx_id()));
        facts.add("why that one waits", first.facts.wait.as_ref().map(|wait| json!(wait)));
    }
}

fn of_wait(facts: &mut Facts, scene: &Scene<'_>, wait: &WaitReason) {
    let conditions = &scene.cursor.conditions;
    match wait {
        WaitReason::SlotBusy { nonce } => facts.add("busy nonce", json!(nonce)),
        WaitReason::GapBelow { nonce } => facts.add("missing nonce", json!(nonce)),
        WaitReason::BelowBaseFee { .. } => {
            let bump = &scene.settings.bump;
            facts.add("gas_bump.enabled", json!(bump.enabled));
            facts
                .add("fees.max_fee_per_gas", scene.settings.caps.max_fee_per_gas.map(|cap| json!(gwei(cap))));
        }
        WaitReason::FeeCap { cap, market } => {
            facts.add("cap", json!(gwei(*cap)));
            facts.add("market", json!(gwei(*market)));
        }
        WaitReason::OutOfFunds { balance, needed } => {
            facts.add("balance in wei", json!(balance.0.to_string()));
            facts.add("needed in wei", json!(needed.0.to_string()));
        }
        WaitReason::Held { .. } => {
            for (cause, words) in &conditions.holds {
                facts.add("hold", json!(format!("{cause}: {words}")));
            }
        }
        WaitReason::Protected { nonce, .. } => {
            facts.add("foreign nonce", json!(nonce));
            if let Some(protect) = &conditions.protect {
                facts.add("foreign transaction", protect.hash().map(|hash| json!(hash)));
                facts.add("foreign block", protect.exhibit.map(|exhibit| json!(exhibit.block_number)));
                facts.add("foreign block hash", protect.exhibit.map(|exhibit| json!(exhibit.block_hash)));
            }
        }
        WaitReason::NodeDown { .. } => {
            for endpoint in &scene.sight.endpoints {
                facts.add("endpoint", json!(format!("{}: {}", endpoint.name, endpoint.detail)));
            }
        }
        WaitReason::Confirming { count, required } => {
            facts.add("confirmations", json!(count));
            facts.add("required", json!(required));
        }
        WaitReason::Reorged { block_number } => facts.add("vanished block", json!(block_number)),
        WaitReason::NotInPool { .. } | WaitReason::Paused => {}
    }
}
