//! A second real node: it mines by the clock, with each transaction, or when told; forgets its pool, and changes its mind.
#![cfg(feature = "geth")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod on_geth {
    use std::time::Duration;

    use alloy_primitives::{Address, Bytes};
    use gapless_testkit::{
        geth::{Geth, GethOptions, Mining},
        process,
        wait::eventually,
    };
    use serde_json::{Value, json};

    const SOON: Duration = Duration::from_secs(60);

    async fn start(mining: Mining) -> Geth {
        Geth::start(GethOptions { mining, ..GethOptions::default() }).await.unwrap()
    }

    async fn height(node: &Geth) -> u64 {
        let height = node.rpc("eth_blockNumber", json!([])).await.unwrap();
        u64::from_str_radix(&height.as_str().unwrap()[2..], 16).unwrap()
    }

    /// The account that geth itself holds the key of sends a wei away.
    async fn transfer(node: &Geth) -> Value {
        let own = node.rpc("eth_accounts", json!([])).await.unwrap()[0].clone();
        let send = json!([{"from": own, "to": Address::repeat_byte(7), "value": "0x1"}]);
        node.rpc("eth_sendTransaction", send).await.unwrap()
    }

    async fn funded(node: &Geth) {
        let poor = Address::repeat_byte(9);
        node.fund(poor, 3).await.unwrap();
        let balance = node.rpc("eth_getBalance", json!([poor, "latest"])).await.unwrap();
        assert_eq!(balance, json!("0xb2d05e00"));
    }

    async fn receipt(node: &Geth, hash: &Value) -> Option<Value> {
        let receipt = node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
        (!receipt.is_null()).then_some(receipt)
    }

    #[tokio::test]
    async fn a_node_mines_each_transaction_as_it_comes() {
        let node = start(Mining::OnDemand).await;
        assert_eq!(node.rpc("eth_chainId", json!([])).await.unwrap(), json!("0x7a69"));
        let hash = transfer(&node).await;
        let receipt = eventually(SOON, "the receipt", || receipt(&node, &hash)).await.unwrap();
        assert_eq!((&receipt["status"], &receipt["gasUsed"]), (&json!("0x1"), &json!("0x5208")));
        funded(&node).await;
    }

    #[tokio::test]
    async fn a_node_mines_by_the_clock() {
        let node = start(Mining::Every(Duration::from_secs(1))).await;
        let hash = transfer(&node).await;
        eventually(SOON, "the receipt", || receipt(&node, &hash)).await.unwrap();
        let before = height(&node).await;
        let grown = || async { (height(&node).await > before + 1).then_some(()) };
        eventually(SOON, "empty blocks", grown).await.unwrap();
        funded(&node).await;
    }

    #[tokio::test]
    async fn a_node_mines_when_told_and_replaces_what_it_mined() {
        let at = Address::repeat_byte(0x1e);
        let code = vec![(at, Bytes::from_static(&[0x00]))];
        let options = GethOptions { mining: Mining::WhenTold, code, ..GethOptions::default() };
        let node = Geth::start(options).await.unwrap();
        assert_eq!(node.rpc("eth_getCode", json!([at, "latest"])).await.unwrap(), json!("0x00"));
        funded(&node).await;
        let hash = transfer(&node).await;
        assert_eq!(height(&node).await, 2, "one at the start, one with the money");
        node.mine(3).await.unwrap();
        assert_eq!(receipt(&node, &hash).await.unwrap()["blockNumber"], json!("0x3"));
        assert_eq!(height(&node).await, 5);

        let before = node.rpc("eth_getBlockByNumber", json!(["0x3", false])).await.unwrap();
        node.reorg(3).await.unwrap();
        let after = node.rpc("eth_getBlockByNumber", json!(["0x3", false])).await.unwrap();
        assert_eq!(height(&node).await, 5);
        assert_eq!(before["parentHash"], after["parentHash"]);
        assert_ne!(before["hash"], after["hash"]);
        assert_eq!(receipt(&node, &hash).await, None);
        node.mine(1).await.unwrap();
        assert_eq!(receipt(&node, &hash).await, None, "no pool held it");
    }

    #[tokio::test]
    async fn gas_gets_dearer_and_cheaper_as_told() {
        let node = start(Mining::WhenTold).await;
        node.raise_base_fee(9_000_000_000).await.unwrap();
        assert!((9_000_000_000..12_000_000_000).contains(&node.base_fee().await.unwrap()));
        node.lower_base_fee(2_000_000_000).await.unwrap();
        assert!((1_500_000_000..=2_000_000_000).contains(&node.base_fee().await.unwrap()));
        assert!(node.raise_base_fee(1 << 60).await.is_err());
    }

    #[tokio::test]
    async fn a_restart_keeps_the_chain_and_empties_the_pool_unless_told_otherwise() {
        for keep_pool in [false, true] {
            let options = GethOptions { mining: Mining::WhenTold, keep_pool, ..GethOptions::default() };
            let node = Geth::start(options).await.unwrap();
            let url = node.url();
            let mined = transfer(&node).await;
            node.mine(1).await.unwrap();
            let pending = transfer(&node).await;
            let before = height(&node).await;
            node.restart().await.unwrap();
            assert_eq!(node.url(), url);
            assert!(receipt(&node, &mined).await.is_some());
            assert_eq!(height(&node).await, before + 1);
            let look = || async {
                let found = node.rpc("eth_getTransactionByHash", json!([pending])).await.unwrap();
                (!found.is_null()).then_some(found)
            };
            if keep_pool {
                eventually(SOON, "the pool to be read back", look).await.unwrap();
            } else {
                assert_eq!(look().await, None);
            }
        }
    }

    #[tokio::test]
    async fn a_dropped_node_leaves_no_process() {
        let node = start(Mining::OnDemand).await;
        let (pid, folder) = (node.pid().unwrap(), node.data().parent().unwrap().to_owned());
        assert!(folder.exists());
        drop(node);
        let gone = || async { (!process::is_alive(pid) && !folder.exists()).then_some(()) };
        eventually(SOON, "the node and its folder to vanish", gone).await.unwrap();
    }
}
