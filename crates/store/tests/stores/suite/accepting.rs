//! Accepting requests (invariant *same-request-same-tx*).

use alloy_primitives::{Address, B256, U256};
use gapless_core::fees::{FeeWishes, Gas, GasPrice, Speed, Wei};
use gapless_core::ids::{RequestId, Scope, TxId};
use gapless_core::intent::{AccessListItem, Intent, OnExpiry, Options, Payload};
use gapless_core::limits::MAX_REQUEST_ID_BYTES;
use gapless_core::record::{Accepted, Metadata, NewTx};
use gapless_core::state::TxState;
use gapless_testkit::fixtures::{self, TestClock, request};
use uuid::Uuid;

use crate::world::{World, accept_one};

pub async fn a_new_request_is_accepted_and_queued(w: &World) {
    let submitter = w.submitter(1).await;
    let item = request(&submitter, "order-1", Uuid::from_u128(1), 5);
    let record = accept_one(w.store.as_ref(), &item).await;
    assert_eq!(record.request, item);
    assert_eq!((record.facts.state, record.facts.seq.0), (TxState::Queued, 1));
    assert_eq!((record.created_at, record.fencing_token), (TestClock::START, None));
    assert_eq!(w.store.peek_queue(&submitter, 10).await.unwrap(), [record]);
}

pub async fn a_repeated_request_gets_the_same_transaction(w: &World) {
    let submitter = w.submitter(1).await;
    let first = accept_one(w.store.as_ref(), &request(&submitter, "order-1", Uuid::from_u128(1), 5)).await;
    let repeat = request(&submitter, "order-1", Uuid::from_u128(2), 5);
    assert_eq!(w.store.accept(&[repeat]).await.unwrap(), [Accepted::Known(Box::new(first.clone()))]);
    assert_eq!(w.store.tx(TxId(Uuid::from_u128(2))).await.unwrap(), None);
    let found = w.store.tx_by_request(&first.request.scope, &first.request.request_id).await.unwrap();
    assert_eq!(found, Some(first));
}

pub async fn another_payload_under_the_same_id_is_a_mismatch(w: &World) {
    let submitter = w.submitter(1).await;
    let first = accept_one(w.store.as_ref(), &request(&submitter, "order-1", Uuid::from_u128(1), 5)).await;
    let other = request(&submitter, "order-1", Uuid::from_u128(2), 6);
    assert_eq!(w.store.accept(&[other]).await.unwrap(), [Accepted::Mismatch { tx_id: first.tx_id() }]);
    assert_eq!(w.store.peek_queue(&submitter, 10).await.unwrap().len(), 1);
}

pub async fn odd_request_ids_are_kept_to_the_letter(w: &World) {
    let submitter = w.submitter(1).await;
    let longest = "ß".repeat(MAX_REQUEST_ID_BYTES / 2);
    let odd =
        ["a:b", "a/b", "a b", "注文 №7", "'; DROP TABLE managed_tx; --", "{\"x\":1}", "\u{1}\n\t", &longest];
    for (n, id) in odd.iter().enumerate() {
        let item = request(&submitter, id, Uuid::from_u128(n as u128 + 1), 5);
        accept_one(w.store.as_ref(), &item).await;
        let found =
            w.store.tx_by_request(&item.scope, &RequestId::parse(id).unwrap()).await.unwrap().unwrap();
        assert_eq!(found.request.request_id.as_str(), *id);
        assert_eq!(found.tx_id(), item.tx_id);
    }
}

pub async fn an_unknown_submitter_costs_only_its_item(w: &World) {
    let known = w.submitter(1).await;
    let stranger = fixtures::submitter(99);
    let items = [request(&stranger, "x", Uuid::from_u128(1), 1), request(&known, "x", Uuid::from_u128(2), 1)];
    let outcomes = w.store.accept(&items).await.unwrap();
    assert_eq!(outcomes[0], Accepted::UnknownSubmitter);
    assert!(matches!(outcomes[1], Accepted::New { .. }));
    assert_eq!(w.store.tx(items[0].tx_id).await.unwrap(), None);
}

pub async fn a_batch_keeps_the_order_it_was_given_in(w: &World) {
    let submitter = w.submitter(1).await;
    let names = ["zebra", "ant", "mole", "bee"];
    let items: Vec<NewTx> = names
        .iter()
        .enumerate()
        .map(|(n, id)| request(&submitter, id, Uuid::from_u128(n as u128 + 1), 1))
        .collect();
    w.store.accept(&items).await.unwrap();
    let later = accept_one(w.store.as_ref(), &request(&submitter, "aardvark", Uuid::from_u128(9), 1)).await;
    let queue = w.store.peek_queue(&submitter, 10).await.unwrap();
    let order: Vec<&str> = queue.iter().map(|tx| tx.request.request_id.as_str()).collect();
    assert_eq!(order, ["zebra", "ant", "mole", "bee", "aardvark"]);
    assert!(queue.iter().all(|tx| tx.order <= later.order), "what was acknowledged earlier stands earlier");
}

pub async fn the_same_request_twice_in_one_batch_is_one_transaction(w: &World) {
    let submitter = w.submitter(1).await;
    let items =
        [request(&submitter, "x", Uuid::from_u128(1), 1), request(&submitter, "x", Uuid::from_u128(2), 1)];
    let outcomes = w.store.accept(&items).await.unwrap();
    assert!(matches!(outcomes[0], Accepted::New { .. }));
    assert!(matches!(&outcomes[1], Accepted::Known(known) if known.tx_id() == items[0].tx_id));
    assert_eq!(w.store.peek_queue(&submitter, 10).await.unwrap().len(), 1);
}

pub async fn everything_asked_for_is_read_back(w: &World) {
    let submitter = w.submitter(1).await;
    let payload = Payload {
        to: None,
        value: Wei(U256::MAX),
        data: vec![0, 1, 0xff].into(),
        gas_limit: Some(Gas(u64::MAX)),
        access_list: vec![AccessListItem {
            address: Address::repeat_byte(3),
            storage_keys: vec![B256::repeat_byte(4)],
        }],
    };
    let options = Options {
        fees: FeeWishes { gas_price: Some(GasPrice(u128::MAX)), ..Default::default() },
        speed: Speed::Fast,
        valid_until: Some(TestClock::START),
        on_expiry: OnExpiry::Cancel,
        deferred: true,
    };
    let scope = Scope::parse("pool:hot").unwrap();
    let metadata = Metadata::parse(r#"{"note": "as  given", "n": 1.50, "nul": "\u0000"}"#);
    let item = NewTx::new(
        TxId(Uuid::from_u128(7)),
        scope,
        submitter,
        RequestId::parse("full").unwrap(),
        Intent { payload, options },
        metadata,
    )
    .unwrap();
    let record = accept_one(w.store.as_ref(), &item).await;
    assert_eq!(record.request, item);
    assert_eq!(record.request.metadata.unwrap().as_str(), item.metadata.unwrap().as_str());
}
