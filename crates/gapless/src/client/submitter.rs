//! `gapless submitter …`

use serde_json::json;

use super::Client;
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
    };
    client.show(&answer);
    Ok(())
}
