//! An endpoint that refuses every transaction in words of another chain, for a while.

use std::time::Duration;

use gapless_core::attempt::Route;
use gapless_core::outcome::SendOutcome;
use gapless_core::ports::chain::Chain;
use gapless_evm::{EvmChain, EvmOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use gapless_testkit::wait::eventually;

use crate::common::*;

const SEND: &str = "eth_sendRawTransaction";
const LIES: [&str; 2] = ["invalid chain id for signer: have 1 want 31337", "transaction type not supported"];

fn says(message: &str) -> Fault {
    Fault::ErrorWithoutForward { code: -32000, message: message.into() }
}

/// Reads until the first endpoint is in order again: reads are what makes somebody look.
async fn taken_back(chain: &EvmChain) {
    let healthy = || async {
        chain.head().await.unwrap();
        chain.endpoints()[0].healthy.then_some(())
    };
    eventually(SOON, "its return", healthy).await.unwrap_or_else(|e| panic!("{e}: {:?}", chain.endpoints()));
}

#[tokio::test]
async fn it_is_put_aside_named_asked_again_and_used_again_once_it_behaves() {
    for lie in LIES {
        let node = patient_node().await;
        let (first, second) = (RpcProxy::start(node.url()).unwrap(), RpcProxy::start(node.url()).unwrap());
        let recheck = Duration::from_secs(1);
        let chain = EvmChain::new(&EvmOptions { recheck, ..options([first.url(), second.url()]) }).unwrap();
        taken_back(&chain).await;
        let attempts = transfers(0..3, Route::Public).await;
        let rule = first.rule(SEND, says(lie));
        for (round, attempt) in (1..).zip(&attempts[..2]) {
            // The bytes go in all the same, and the endpoint stays away until its check is due.
            assert_eq!(chain.send(&[attempt]).await, [SendOutcome::Accepted], "{lie}");
            assert_eq!((first.calls(SEND), second.calls(SEND)), (round, round));
            let status = chain.endpoints().remove(0);
            assert!(!status.healthy && status.detail.contains(lie), "{status:?}");
            taken_back(&chain).await;
        }
        first.remove(rule);
        assert_eq!(chain.send(&[&attempts[2]]).await, [SendOutcome::Accepted]);
        assert_eq!((first.calls(SEND), second.calls(SEND)), (3, 2));
        assert!(chain.endpoints()[0].healthy);
    }
}

#[tokio::test]
async fn where_there_is_no_other_reads_go_on_and_the_same_bytes_go_in_once_it_behaves() {
    for lie in LIES {
        let node = patient_node().await;
        let proxy = RpcProxy::start(node.url()).unwrap();
        let chain = chain_of(proxy.url());
        let attempts = transfers(0..1, Route::Public).await;
        let rule = proxy.rule(SEND, says(lie));
        for _ in 0..5 {
            let outcome = chain.send(&all(&attempts)).await.remove(0);
            assert!(matches!(outcome, SendOutcome::WrongEndpoint(_)), "{lie}: {outcome:?}");
            chain.head().await.unwrap();
            chain.counts(&account()).await.unwrap();
        }
        proxy.remove(rule);
        assert_eq!(chain.send(&all(&attempts)).await, [SendOutcome::Accepted], "{lie}");
        assert!(chain.endpoints()[0].healthy);
    }
}
