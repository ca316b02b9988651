//! The program: reads the configuration, wires the adapters to the engine, and serves or asks.
//!
//! Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 failed, 2 called wrongly.

mod anvil;
mod args;
mod bench;
mod client;
mod config;
mod dev;
mod doctor;
mod logs;
mod migrate;
mod node;
mod patience;
mod serve;
mod switches;
mod wiring;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let outcome = runtime.block_on(run(args));
    // A blocked thread (a keystore being opened, a name being resolved) must not hold the end up.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let config = args.config.as_deref();
    match args.command {
        Command::Serve => serve::run(config::load(config)?).await,
        Command::Dev(options) => dev::run(&options).await,
        Command::Bench(options) => bench::run(&options, args.json).await,
        Command::BenchLoad => bench::load().await,
        Command::Migrate => migrate::run(&config::load(config)?, args.json).await,
        Command::Doctor => doctor::run(config, args.json).await,
        Command::Tx(command) => client::tx::run(&client::Client::new(&args.url, args.json)?, command).await,
        Command::Submitter(command) => {
            client::submitter::run(&client::Client::new(&args.url, args.json)?, command).await
        }
        Command::Stuck(command) => {
            client::stuck::run(&client::Client::new(&args.url, args.json)?, command).await
        }
        Command::Openapi => {
            print!("{}", gapless_api::openapi::DOCUMENT);
            Ok(())
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "gapless", &mut std::io::stdout());
            Ok(())
        }
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("gapless: {error:#}");
    ExitCode::FAILURE
}
