//! Reading what was just accepted: neighbours in the order of acceptance, so one page holds many of them.

use std::collections::HashMap;

use gapless_core::ids::{Order, TxId};
use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::{Store, StoreResult, TxFilter};
use gapless_core::record::TxRecord;

/// Orders further apart than this are no neighbours: they are read one by one.
const SPREAD: u64 = 4 * MAX_PAGE as u64;

/// The records of each group, in its order.
pub(crate) async fn read(
    store: &dyn Store,
    groups: Vec<Vec<(TxId, Order)>>,
) -> Vec<StoreResult<Vec<Option<TxRecord>>>> {
    let wanted: Vec<(TxId, Order)> = groups.iter().flatten().copied().collect();
    match find(store, &wanted).await {
        Ok(mut found) => {
            let mut pick = |group: Vec<(TxId, Order)>| {
                Ok(group.into_iter().map(|(tx_id, _)| found.remove(&tx_id)).collect())
            };
            groups.into_iter().map(&mut pick).collect()
        }
        Err(error) => groups.iter().map(|_| Err(error.clone())).collect(),
    }
}

async fn find(store: &dyn Store, wanted: &[(TxId, Order)]) -> StoreResult<HashMap<TxId, TxRecord>> {
    let mut found = HashMap::with_capacity(wanted.len());
    let orders = || wanted.iter().map(|(_, order)| order.0);
    let (Some(first), Some(last)) = (orders().min(), orders().max()) else { return Ok(found) };
    if last - first > SPREAD {
        for (tx_id, _) in wanted {
            found.extend(store.tx(*tx_id).await?.map(|record| (*tx_id, record)));
        }
        return Ok(found);
    }
    let mut below = first.saturating_sub(1);
    while below < last {
        let limit = usize::try_from(last - below).unwrap_or(MAX_PAGE).min(MAX_PAGE);
        let page = store.list(&TxFilter { after: Some(Order(below)), limit, ..TxFilter::default() }).await?;
        let Some(end) = page.last().map(|record| record.order.0) else { break };
        found.extend(page.into_iter().map(|record| (record.tx_id(), record)));
        below = end;
    }
    Ok(found)
}
