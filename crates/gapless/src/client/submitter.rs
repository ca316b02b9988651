//! `gapless submitter …`

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Client, plain, table};
use crate::args::SubmitterCommand;

/// Runs one command.
pub(crate) async fn run(client: &Client, command: SubmitterCommand) -> anyhow::Result<()> {
    let answer = match command {
        SubmitterCommand::List => {
            let page = client.get(&["submitters"], &[("limit", "1000")]).await?;
            client.show_page(
                &page,
                &["submitter", "condition", "mode", "nextNonce", "queued", "open", "ownerNode"],
            );
            return Ok(());
        }
        SubmitterCommand::Show { submitter } => client.get(&["submitters", &submitter], &[]).await?,
        SubmitterCommand::Register { submitter } => {
            client.post(&["submitters"], &json!({ "submitter": submitter })).await?
        }
        SubmitterCommand::Pause { submitter } => {
            client.post(&["submitters", &submitter, "pause"], &json!({})).await?
        }
        SubmitterCommand::Resume { submitter } => {
            client.post(&["submitters", &submitter, "resume"], &json!({})).await?
        }
        SubmitterCommand::Unprotect { submitter, acknowledged_nonce } => {
            let body = json!({ "acknowledgedNonce": acknowledged_nonce });
            client.post(&["submitters", &submitter, "unprotect"], &body).await?
        }
        SubmitterCommand::ResetNonce { submitter, force } => {
            let body = json!({ "force": force });
            later(client.post(&["submitters", &submitter, "reset-nonce"], &body).await?)
        }
        SubmitterCommand::Drain { submitter } => {
            let answer = later(client.post(&["submitters", &submitter, "drain"], &json!({})).await?);
            client.show(&answer);
            let failed = answer["failed"].as_array().map_or(0, Vec::len);
            ensure!(failed == 0, "{failed} could not be cancelled");
            return Ok(());
        }
        SubmitterCommand::Nonces { submitter, from, to } => {
            show_nonces(client, &bounded(client, &submitter, "nonces", (from, to)).await?);
            return Ok(());
        }
        SubmitterCommand::Report { submitter, from, to } => {
            let report = bounded(client, &submitter, "report", (from, to)).await?;
            client.show(&report);
            let found = report["violations"].as_array().map_or(0, Vec::len);
            ensure!(found == 0, "{found} violations");
            return Ok(());
        }
    };
    client.show(&answer);
    Ok(())
}

/// What a node tells of a range of nonces.
async fn bounded(
    client: &Client,
    submitter: &str,
    what: &str,
    (from, to): (Option<u64>, Option<u64>),
) -> anyhow::Result<Value> {
    let bounds = [("from", from), ("to", to)];
    let given: Vec<(&str, String)> =
        bounds.iter().filter_map(|(name, bound)| Some((*name, (*bound)?.to_string()))).collect();
    let query: Vec<(&str, &str)> = given.iter().map(|(name, bound)| (*name, bound.as_str())).collect();
    client.get(&["submitters", submitter, what], &query).await
}

/// Says so if the lane has not executed a command that was waited for.
fn later(answer: Value) -> Value {
    if let Some(id) = answer["commandId"].as_str() {
        eprintln!("the lane has not executed it yet: GET /api/v1/commands/{id} tells when it has");
    }
    answer
}

/// One line per nonce.
fn show_nonces(client: &Client, page: &Value) {
    if client.wants_json() {
        return println!("{page}");
    }
    let items = page["items"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = items
        .map(|slot| {
            let attempts: Vec<&Value> = slot["attempts"].as_array().into_iter().flatten().collect();
            let newest = attempts.last().map_or(Value::Null, |attempt| attempt["hash"].clone());
            let hash = if slot["minedHash"].is_null() { newest } else { slot["minedHash"].clone() };
            let status = match slot["note"].as_str() {
                Some(note) => format!("{} ({note})", plain(&slot["status"])),
                None => plain(&slot["status"]),
            };
            let block = slot["blockNumber"]
                .as_str()
                .and_then(|hex| u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok());
            let block = block.map_or("-".to_owned(), |number| number.to_string());
            vec![
                plain(&slot["nonce"]),
                status,
                attempts.len().to_string(),
                block,
                plain(&slot["txId"]),
                plain(&hash),
            ]
        })
        .collect();
    table::print(&["nonce", "status", "attempts", "block", "txId", "hash"], &rows);
}
