//! Replacements that cannot be: refused with a code, told, and nothing is sent.

use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::fees::Gas;
use gapless_core::ids::TxId;
use gapless_core::record::MinedAs;
use serde_json::{Value, json};

use crate::contest::{Contest, Door, commands_told, soon_settled};
use crate::contracts;
use crate::support::{LEDGER, call, place, pooled, unmined};

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_take_the_place_of_what_is_bound() {
    let anvil = unmined().await;
    let flag = alloy_primitives::Address::repeat_byte(0xf1);
    place(&anvil, flag, &contracts::FLAG).await;
    let contest = Contest::of(anvil, soon_settled(1), 2, Door::Open).await;
    pooled(&contest.anvil, 1).await;
    let offered = contest.stored(0, 1).await[0].fees;
    let starved = gapless_core::intent::Payload { gas_limit: Some(Gas(100)), ..call(LEDGER, vec![1]) };
    let same = json!({"maxFeePerGas": offered.ceiling(), "maxPriorityFeePerGas": offered.tip()});
    let cases: [(Value, &str); 3] = [
        (json!({"fees": same}), "fee-too-low"),
        (json!({"payload": starved}), "intrinsic-gas-too-low"),
        (json!({"payload": call(flag, vec![1])}), "execution-reverted"),
    ];
    let id = contest.ids[0];
    let mut told = Vec::new();
    for (args, code) in cases {
        let end = contest.ask(Some(id), Verb::Replace, args).await;
        assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Refused, code));
        told.push(json!({"command": "replace", "outcome": "refused", "code": code}));
    }
    assert_eq!(commands_told(&contest.leads, id).await, told);
    for (about, args, code) in [
        (Some(id), json!({}), "invalid-request"),
        (Some(id), json!({"payload": 7}), "invalid-request"),
        (
            Some(TxId(uuid::Uuid::from_u128(1))),
            json!({"payload": call(LEDGER, vec![1])}),
            "unknown-transaction",
        ),
        (None, json!({}), "unknown-transaction"),
    ] {
        let end = contest.ask(about, Verb::Replace, args).await;
        assert_eq!((end.outcome, end.code.unwrap().as_str()), (CommandOutcome::Refused, code));
    }
    assert_eq!(contest.stored(0, 1).await.len(), 1, "nothing was bid");
    contest.to_the_end().await;
    for id in &contest.ids {
        assert_eq!(contest.leads.confirmed(*id).await.mined_as, Some(MinedAs::Payload));
    }
    contest.kept().await;
}
