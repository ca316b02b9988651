//! Ends by what the chain calls safe or finalized, instead of by a number of blocks.

use gapless_core::ports::chain::Tag;
use gapless_core::state::TxState;
use gapless_engine::{FinalityRule, LaneSettings};
use gapless_testkit::anvil::AnvilOptions;
use serde_json::json;

use crate::support::{Node, chain, mine, number, pooled, quick};

async fn ends_with(tag: Tag) {
    let extra_args = ["--no-mining", "--slots-in-an-epoch", "3"].map(String::from).to_vec();
    let anvil = chain(AnvilOptions { extra_args, ..AnvilOptions::default() }).await;
    let settings = LaneSettings { finality: FinalityRule::Tag(tag), ..quick(0) };
    let node = Node::start(&anvil.url(), settings).await;
    let ids = node.submit_all(0, 2).await;
    pooled(&anvil, 1).await;
    mine(&anvil, 1).await;
    let mined = node.until(ids[0], "the block", |view| view.mined_as.is_some()).await;
    let block = number(&serde_json::to_value(&mined.receipt).unwrap()["blockNumber"]);
    let mut waited = 0;
    loop {
        let tagged = anvil.rpc("eth_getBlockByNumber", json!([tag.name(), false])).await.unwrap();
        if number(&tagged["number"]) >= block {
            break;
        }
        // Long enough for several looks at this head.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let view = node.handle.tx(ids[0]).await.unwrap();
        assert_eq!(view.state, TxState::Tracking, "the tag is at {}", tagged["number"]);
        waited += 1;
        mine(&anvil, 1).await;
    }
    assert!(waited >= 3, "the tag came after {waited} blocks");
    node.confirmed(ids[0]).await;
    mine(&anvil, 10).await;
    node.each_took_effect_once(&anvil, &ids).await;
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ends_when_its_block_is_called_safe() {
    ends_with(Tag::Safe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ends_when_its_block_is_called_finalized() {
    ends_with(Tag::Finalized).await;
}
