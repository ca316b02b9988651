//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::bench::BenchOptions;

/// Sends EVM transactions without nonce gaps, exactly once.
#[derive(Debug, Parser)]
#[command(name = "gapless", version, propagate_version = true)]
pub(crate) struct Args {
    /// Configuration file (default: gapless.toml in this folder, if there is one)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Write data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Address of the API, for the commands that ask a running node
    #[arg(long, global = true, env = "GAPLESS_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node
    Serve,
    /// Run a local chain and a node on it, and send sample transactions
    Dev(DevOptions),
    /// Measure: the node by itself, pipelined and strict mode, and how fast requests are accepted
    Bench(BenchOptions),
    /// The load of a measurement, in a process of its own: reads its plan from stdin
    #[command(hide = true)]
    BenchLoad,
    /// Bring the store's schema up to date
    Migrate,
    /// Check configuration, store, RPC endpoints and signers
    Doctor,
    /// Send transactions and look at them
    #[command(subcommand)]
    Tx(TxCommand),
    /// Look at submitters and operate them
    #[command(subcommand)]
    Submitter(SubmitterCommand),
    /// Look at transactions that do not move
    #[command(subcommand)]
    Stuck(StuckCommand),
    /// Write the API's OpenAPI document
    Openapi,
    /// Write a completion script for a shell
    Completions {
        /// For which
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevOptions {
    /// End with success once the samples are CONFIRMED
    #[arg(long)]
    pub(crate) once: bool,

    /// Where the API listens
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) listen: std::net::SocketAddr,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TxCommand {
    /// Send a transaction
    Send(SendOptions),
    /// Show a transaction, by its id or hash
    Get {
        /// Id, or hash of any of its attempts
        id: String,
    },
    /// List transactions in the order they were accepted
    List {
        /// Of one submitter
        #[arg(long)]
        submitter: Option<String>,
        /// In these states
        #[arg(long, value_delimiter = ',')]
        state: Vec<String>,
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Where the last page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Follow a transaction until it ends
    Watch {
        /// Its id
        id: String,
    },
    /// Ask for a transaction's withdrawal: at once if it was not sent, else a placeholder competes for its nonce
    Cancel {
        /// Its id
        id: String,
    },
    /// Put another payload, or other fees, in a transaction's place
    Replace(ReplaceOptions),
    /// Tell why a transaction is where it is, what shows it, and what happens next
    Explain {
        /// Its id
        id: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceOptions {
    /// Its id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct ChangeOptions {
    /// Receiver of the new payload; a payload replaces the old one as a whole
    #[arg(long)]
    pub(crate) to: Option<String>,
    /// Wei of the new payload, decimal or 0x-hex
    #[arg(long)]
    pub(crate) value: Option<String>,
    /// Calldata of the new payload, 0x-hex
    #[arg(long)]
    pub(crate) data: Option<String>,
    /// Gas limit of the new payload
    #[arg(long)]
    pub(crate) gas_limit: Option<String>,
    /// The most to pay per gas, in wei
    #[arg(long, value_name = "WEI")]
    pub(crate) max_fee_per_gas: Option<String>,
    /// The most to tip per gas, in wei
    #[arg(long, value_name = "WEI")]
    pub(crate) max_priority_fee_per_gas: Option<String>,
    /// The price per gas on a chain without EIP-1559, in wei
    #[arg(long, value_name = "WEI")]
    pub(crate) gas_price: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendOptions {
    /// Account that sends: eip155:CHAIN:0x…, or its address where that is unambiguous
    #[arg(long)]
    pub(crate) submitter: String,
    /// Your name for this request; sending the same name again is harmless
    #[arg(long, value_name = "NAME")]
    pub(crate) request_id: String,
    /// Receiver; none creates a contract
    #[arg(long)]
    pub(crate) to: Option<String>,
    /// Wei, decimal or 0x-hex
    #[arg(long)]
    pub(crate) value: Option<String>,
    /// Calldata or init code, 0x-hex
    #[arg(long)]
    pub(crate) data: Option<String>,
    /// Gas limit; estimated if not given
    #[arg(long)]
    pub(crate) gas_limit: Option<String>,
    /// Follow it until it ends
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubmitterCommand {
    /// List all submitters
    List,
    /// Show one
    Show {
        /// Which
        submitter: String,
    },
    /// Make one known to the store
    Register {
        /// eip155:CHAIN:0x…
        submitter: String,
    },
    /// Take no new nonces
    Pause {
        /// Which
        submitter: String,
    },
    /// Go on
    Resume {
        /// Which
        submitter: String,
    },
    /// Acknowledge foreign use of the account and go on above it
    Unprotect {
        /// Which
        submitter: String,
        /// The foreign nonce, as `submitter show` tells it
        #[arg(long, value_name = "NONCE")]
        acknowledged_nonce: u64,
    },
    /// Read the nonce from the chain again
    ResetNonce {
        /// Which
        submitter: String,
        /// Although stored attempts could still be mined: their slots stay bound, their transactions become STUCK
        #[arg(long)]
        force: bool,
    },
    /// Cancel everything that can be cancelled
    Drain {
        /// Which
        submitter: String,
    },
    /// Show what became of each nonce
    Nonces {
        /// Which
        submitter: String,
        /// The first to show
        #[arg(long, value_name = "NONCE")]
        from: Option<u64>,
        /// The first not to show any more
        #[arg(long, value_name = "NONCE")]
        to: Option<u64>,
    },
    /// Look for nonces that break an invariant; fails if there are any
    Report {
        /// Which
        submitter: String,
        /// The first to look at
        #[arg(long, value_name = "NONCE")]
        from: Option<u64>,
        /// The first not to look at any more
        #[arg(long, value_name = "NONCE")]
        to: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StuckCommand {
    /// Say what the policy for the stuck would do, and do nothing
    Plan {
        /// Of one submitter
        #[arg(long)]
        submitter: Option<String>,
    },
}
