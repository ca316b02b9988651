//! `gapless tx …`

use anyhow::bail;
use serde_json::{Map, Value, json};

use super::{Client, plain};
use crate::args::{ChangeOptions, ReplaceOptions, SendOptions, TxCommand};

/// States that nothing leaves.
const ENDS: [&str; 5] = ["CONFIRMED", "FAILED_FINAL", "REJECTED", "CANCELLED", "EXPIRED"];

/// Runs one command.
pub(crate) async fn run(client: &Client, command: TxCommand) -> anyhow::Result<()> {
    match command {
        TxCommand::Send(options) => send(client, options).await,
        TxCommand::Get { id } => {
            let view = match id.starts_with("0x") {
                true => client.get(&["tx", "by-hash", &id], &[]).await?,
                false => client.get(&["tx", &id], &[]).await?,
            };
            client.show(&view);
            Ok(())
        }
        TxCommand::List { submitter, state, limit, cursor } => {
            let (limit, states) = (limit.to_string(), state.join(","));
            let mut query = vec![("limit", limit.as_str()), ("state", states.as_str())];
            query.extend(submitter.as_deref().map(|submitter| ("submitter", submitter)));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = client.get(&["tx"], &query).await?;
            client.show_page(&page, &["txId", "state", "subState", "submitter", "requestId", "txHash"]);
            Ok(())
        }
        TxCommand::Watch { id } => watch(client, &id).await,
        TxCommand::Cancel { id } => {
            client.show(&client.post(&["tx", &id, "cancel"], &json!({})).await?);
            Ok(())
        }
        TxCommand::Replace(options) => replace(client, options).await,
        TxCommand::Explain { id } => {
            show_explanation(client, &client.get(&["tx", &id, "explain"], &[]).await?);
            Ok(())
        }
    }
}

/// The fields that were given.
fn given<const N: usize>(fields: [(&str, Option<String>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

async fn replace(client: &Client, options: ReplaceOptions) -> anyhow::Result<()> {
    let ReplaceOptions { id, change } = options;
    let ChangeOptions { to, value, data, gas_limit, .. } = change;
    let payload = given([("to", to), ("value", value), ("data", data), ("gasLimit", gas_limit)]);
    let fees = given([
        ("maxFeePerGas", change.max_fee_per_gas),
        ("maxPriorityFeePerGas", change.max_priority_fee_per_gas),
        ("gasPrice", change.gas_price),
    ]);
    let parts = [("payload", payload), ("fees", fees)].into_iter().filter(|(_, fields)| !fields.is_empty());
    let body: Map<String, Value> = parts.map(|(name, fields)| (name.to_owned(), fields.into())).collect();
    client.show(&client.post(&["tx", &id, "replace"], &Value::Object(body)).await?);
    Ok(())
}

fn show_explanation(client: &Client, told: &Value) {
    if client.wants_json() {
        return println!("{told}");
    }
    println!("{}: {}", plain(&told["reason"]), plain(&told["summary"]));
    for fact in told["evidence"].as_array().into_iter().flatten() {
        println!("  {:<28} {}", plain(&fact["what"]), plain(&fact["value"]));
    }
    match told["next"]["at"].as_str() {
        Some(at) => println!("next: {} ({at})", plain(&told["next"]["action"])),
        None => println!("next: {}", plain(&told["next"]["action"])),
    }
}

async fn send(client: &Client, options: SendOptions) -> anyhow::Result<()> {
    let SendOptions { submitter, request_id, to, value, data, gas_limit, watch: follow } = options;
    let payload = given([("to", to), ("value", value), ("data", data), ("gasLimit", gas_limit)]);
    let body = json!({ "submitter": submitter, "requestId": request_id, "payload": payload });
    let view = client.post(&["tx"], &body).await?;
    match (follow, view["txId"].as_str()) {
        (true, Some(id)) => watch(client, id).await,
        _ => {
            client.show(&view);
            Ok(())
        }
    }
}

/// Follows a transaction until it ends; ends well only if the transaction does.
async fn watch(client: &Client, id: &str) -> anyhow::Result<()> {
    let mut view = client.get(&["tx", id], &[]).await?;
    let mut last = String::new();
    loop {
        let state = plain(&view["state"]);
        let line = format!("{state} {}", plain(&view["subState"]));
        if line != last {
            eprintln!("{} {}", plain(&view["updatedAt"]), line);
            last = line;
        }
        if ENDS.contains(&state.as_str()) {
            client.show(&view);
            if state != "CONFIRMED" {
                bail!("the transaction ended as {state}: {}", plain(&view["failure"]["reason"]));
            }
            return Ok(());
        }
        let seq = plain(&view["seq"]);
        view = client.get(&["tx", id], &[("wait", "30s"), ("after", &seq)]).await?;
    }
}
