//! `GAPLESS__SECTION__KEY=value` over what the file says.

use anyhow::{Context, bail};
use toml::{Table, Value};

const PREFIX: &str = "GAPLESS__";

/// Lays the environment over a table. Array items are named by their place: `GAPLESS__CHAINS__0__RPC`.
pub(super) fn apply(
    table: &mut Table,
    env: impl IntoIterator<Item = (String, String)>,
) -> anyhow::Result<()> {
    let mut found: Vec<(String, String)> = env
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)))
        .collect();
    found.sort();
    for (name, value) in found {
        let path: Vec<String> = name.split("__").map(str::to_lowercase).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            bail!("{PREFIX}{name}: write GAPLESS__SECTION__KEY");
        }
        let mut root = Value::Table(std::mem::take(table));
        let set = set(&mut root, &path, read(&value)).with_context(|| format!("{PREFIX}{name}"));
        if let Value::Table(root) = root {
            *table = root;
        }
        set?;
    }
    Ok(())
}

/// A number, a truth value, an array or an inline table if it reads as one; a text otherwise.
fn read(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    match parsed {
        Some(value) if !matches!(value, Value::Datetime(_)) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn set(at: &mut Value, path: &[String], value: Value) -> anyhow::Result<()> {
    let Some((first, rest)) = path.split_first() else {
        // "node-7" and 7 both name a node: where a text stood, a text stays.
        *at = match (&*at, value) {
            (Value::String(_), Value::Integer(number)) => Value::String(number.to_string()),
            (Value::String(_), Value::Float(number)) => Value::String(number.to_string()),
            (Value::String(_), Value::Boolean(truth)) => Value::String(truth.to_string()),
            (_, value) => value,
        };
        return Ok(());
    };
    match at {
        Value::Table(table) => {
            let place = if rest.first().is_some_and(|next| next.parse::<usize>().is_ok()) {
                Value::Array(Vec::new())
            } else {
                Value::Table(Table::new())
            };
            set(table.entry(first.clone()).or_insert(place), rest, value)
        }
        Value::Array(items) => {
            let place: usize =
                first.parse().with_context(|| format!("`{first}` is not a place in a list"))?;
            if place > items.len() {
                bail!("the list has {} items, the next is number {}", items.len(), items.len());
            }
            if place == items.len() {
                items.push(Value::Table(Table::new()));
            }
            set(&mut items[place], rest, value)
        }
        _ => bail!("`{first}` stands below something that is no section"),
    }
}
