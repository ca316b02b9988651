//! `gapless stuck …`

use serde_json::Value;

use super::{Client, plain};
use crate::args::StuckCommand;

/// Runs one command.
pub(crate) async fn run(client: &Client, command: StuckCommand) -> anyhow::Result<()> {
    let StuckCommand::Plan { submitter } = command;
    let query: Vec<(&str, &str)> = submitter.iter().map(|id| ("submitter", id.as_str())).collect();
    let plan = client.get(&["stuck", "plan"], &query).await?;
    if client.wants_json() {
        println!("{plan}");
        return Ok(());
    }
    let items = plan["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        println!("nothing is stuck");
    }
    for item in items {
        println!("{}", line(item));
    }
    if plan["more"] == true {
        eprintln!("there is more: name a submitter with --submitter");
    }
    Ok(())
}

/// One transaction in a line.
fn line(item: &Value) -> String {
    let step = |of: &Value| of["step"].as_u64().map(|step| format!(" (steps[{step}])")).unwrap_or_default();
    let reason = [&item["waitReason"]["code"], &item["diagnosis"]["diagnosis"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or("no reason known");
    let next = match &item["next"] {
        Value::Null if item["action"] == "keepTrying" => "nothing foreseen".to_owned(),
        Value::Null => "after that, it looks again".to_owned(),
        next => format!("{}{} at {}", plain(&next["action"]), step(next), plain(&next["at"])),
    };
    format!(
        "{}  {}  {}  bound {} ago  sent {} times  {reason}  now: {}{}  next: {next}",
        plain(&item["txId"]),
        plain(&item["submitter"]),
        plain(&item["state"]),
        age(item["ageSeconds"].as_u64().unwrap_or_default()),
        plain(&item["attempts"]),
        plain(&item["action"]),
        step(item),
    )
}

/// A duration with its two greatest units.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}
