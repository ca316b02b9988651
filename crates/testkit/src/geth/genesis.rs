//! Block 0: geth's own for development, under the rules of today's main chain, with accounts and contracts of ours.

use std::path::Path;

use alloy_primitives::{Address, Bytes, address};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{GethOptions, market::BURNER};
use crate::{Error, Result};

/// The accounts of the well-known development phrase, whose keys anvil holds too, and the one whose key geth holds.
const RICH: [Address; 11] = [
    address!("71562b71999873DB5b286dF957af199Ec94617F7"),
    address!("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
    address!("70997970C51812dc3A010C7d01b50e0d17dc79C8"),
    address!("3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
    address!("90F79bf6EB2c4f870365E785982E1f101E93b906"),
    address!("15d34AAf54267DB7D7c367839AAf71A00a2C6A65"),
    address!("9965507D1a55bcC2695C58ba16FB37d819B0A4dc"),
    address!("976EA74026E726554dB657fA54763abd0C3a0aa9"),
    address!("14dC79964da2C08b23698B3D3cc7Ca32193d9955"),
    address!("23618e81E3f5cdF7f54C3d65f7FBc0aBf5B21E8f"),
    address!("a0Ee7A142d267C1f36714E4a8F75612F20a79720"),
];
/// 10,000 ether, as on anvil.
const BALANCE: &str = "0x21e19e0c9bab2400000";
/// Rules that no chain follows yet, which geth's development chain tries out.
const UNBORN: [&str; 2] = ["amsterdamTime", "bogotaTime"];

/// Makes the chain's folder, with block 0 in it.
pub(super) async fn lay(program: &Path, dir: &Path, data: &Path, options: &GethOptions) -> Result<()> {
    let dump = run(Command::new(program).args(["--dev", "dumpgenesis"])).await?;
    let unreadable = |_| Error::Misuse("geth's block 0 is no JSON".into());
    let mut genesis: Value = serde_json::from_slice(&dump).map_err(unreadable)?;
    genesis["config"]["chainId"] = json!(options.chain_id);
    if let Some(config) = genesis["config"].as_object_mut() {
        config.retain(|key, _| !UNBORN.contains(&key.as_str()));
    }
    let alloc = &mut genesis["alloc"];
    for account in RICH {
        alloc[account.to_string()] = json!({"balance": BALANCE});
    }
    alloc[BURNER.0.to_string()] = json!({"balance": "0x0", "code": Bytes::from(BURNER.1)});
    for (at, code) in &options.code {
        let account = &mut alloc[at.to_string()];
        if account.is_null() {
            *account = json!({"balance": "0x0"});
        }
        account["code"] = json!(code);
    }
    let file = dir.join("genesis.json");
    std::fs::write(&file, genesis.to_string()).map_err(Error::io("writing block 0"))?;
    run(Command::new(program).arg("--datadir").arg(data).arg("init").arg(&file)).await.map(drop)
}

/// What a short run of the program says, once it has ended well.
async fn run(command: &mut Command) -> Result<Vec<u8>> {
    let doing = "running geth to make its block 0";
    let output = command.kill_on_drop(true).output().await.map_err(Error::io(doing))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Misuse(format!("{doing} ended with {}: {said}", output.status)))
}
