//! One node in this process: engine and HTTP server, started and drained together.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use gapless_api::{ApiState, BodyLimits, router};
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::limits::MAX_NODE_ID_BYTES;
use gapless_core::ports::clock::Clock;
use gapless_core::submitter::ChainId;
use gapless_engine::{AcceptMode, AcceptRules, Engine, EngineOptions, census, names};
use gapless_store::clock::SystemClock;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{Accept, Config};
use crate::switches::Switches;
use crate::{patience, wiring};

/// How often to look for work that nobody does.
const SWEEP: Duration = Duration::from_secs(1);
/// How often to look at a chain's head.
const POLL: Duration = Duration::from_millis(500);
/// How often submitters and queues are counted for the metrics.
const CENSUS: Duration = Duration::from_secs(15);
/// How often the recorder tidies up.
const UPKEEP: Duration = Duration::from_secs(5);
/// Upper bounds of what histograms tell apart, in seconds.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// The same for the sizes of batches.
const SIZES: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];

/// A node that runs.
pub(crate) struct Node {
    address: SocketAddr,
    stopping: CancellationToken,
    engine: JoinHandle<()>,
    http: JoinHandle<std::io::Result<()>>,
    drain: Duration,
}

impl Node {
    /// Opens the store, registers the submitters and starts to serve.
    pub(crate) async fn start(config: &Config) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // First of all: a taken port is the commonest reason not to start, and nothing was touched yet.
        let listener = TcpListener::bind(config.http.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", config.http.listen))?;
        let address = listener.local_addr()?;
        let recorder = recorder()?;
        let keys = wiring::keys(config)?;
        let registry = wiring::registry(config).await?;
        let store = patience::store(config, &clock).await?;
        let options = engine_options(config, clock.as_ref())?;
        info!(node_id = options.owner.node(), process = %options.owner.process(), %address, "starting");
        if keys.0.is_empty() {
            warn!("no API keys are configured: everybody on this machine may do everything");
        }
        say_idle(config);
        let chains: Vec<ChainId> = registry.chains().into_iter().map(|(id, _)| id).collect();
        names::register(&chains);
        let (engine, handle) = Engine::build(options, store, clock.clone(), registry).await?;
        let handle = handle.accepting(accept_rules(config));

        let stopping = CancellationToken::new();
        tokio::spawn(census::run(handle.clone(), CENSUS, stopping.clone()));
        tokio::spawn(upkeep(recorder.clone(), stopping.clone()));
        let state = ApiState {
            handle,
            clock,
            keys: Arc::new(keys),
            metrics: Arc::new(move || recorder.render()),
            limits: BodyLimits { single: config.limits.body_bytes, batch: config.limits.batch_bytes },
            stopping: stopping.clone(),
        };
        let serving =
            axum::serve(listener, router(state)).with_graceful_shutdown(stopping.clone().cancelled_owned());
        Ok(Self {
            address,
            engine: tokio::spawn(engine.run(stopping.clone())),
            http: tokio::spawn(serving.into_future()),
            stopping,
            drain: config.node.drain_timeout.0,
        })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers who waits, finishes the writes in hand, gives the leases back.
    pub(crate) async fn stop(self) {
        let Self { stopping, engine, http, drain, .. } = self;
        info!(?drain, "stopping");
        stopping.cancel();
        let drained = async {
            let _ = http.await;
            let _ = engine.await;
        };
        // What is accepted is committed, so leaving late work behind loses nothing: leases expire.
        match tokio::time::timeout(drain, drained).await {
            Ok(()) => info!("stopped"),
            Err(_) => warn!("not everything ended in time; another node, or the next start, goes on"),
        }
    }

    /// Returns when a part has ended by itself, which it should not.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        tokio::select! {
            engine = &mut self.engine => match engine {
                Ok(()) => anyhow::anyhow!("the engine ended by itself"),
                Err(error) => anyhow::Error::new(error).context("the engine failed"),
            },
            http = &mut self.http => match http {
                Ok(Ok(())) => anyhow::anyhow!("the HTTP server ended by itself"),
                Ok(Err(error)) => anyhow::Error::new(error).context("the HTTP server failed"),
                Err(error) => anyhow::Error::new(error).context("the HTTP server failed"),
            },
        }
    }
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn told_to_stop() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

fn engine_options(config: &Config, clock: &dyn Clock) -> anyhow::Result<EngineOptions> {
    let lease = &config.lease;
    let Switches { points, guard, sweep } = Switches::from_env(SWEEP)?;
    let name = config.node.id.clone().unwrap_or_else(|| node_name(clock));
    Ok(EngineOptions {
        owner: Owner::new(&name, clock.draw())?,
        terms: LeaseTerms::new(lease.duration.0, lease.clock_skew_allowance.0)?,
        renew: lease.renew_interval.0,
        sweep,
        idle_release: lease.idle_release.0,
        poll: POLL,
        guard,
        points,
    })
}

fn accept_rules(config: &Config) -> AcceptRules {
    let mode = match config.api.accept {
        Accept::Any => AcceptMode::Any,
        Accept::Leader => AcceptMode::Leader,
    };
    AcceptRules { mode, queued_per_submitter: config.limits.queued_per_submitter }
}

/// The host's name and a random suffix.
fn node_name(clock: &dyn Clock) -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let host: String =
        host.unwrap_or_else(|| "node".to_owned()).chars().take(MAX_NODE_ID_BYTES / 8).collect();
    let random = clock.draw().simple().to_string();
    format!("{host}-{}", &random[random.len() - 6..])
}

/// Names what the file asks for and this version does not do.
fn say_idle(config: &Config) {
    for (place, what) in config.idle() {
        warn!(place, what, "this is read, but this version does not act on it");
    }
}

async fn upkeep(recorder: PrometheusHandle, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
        recorder.run_upkeep();
    }
}

/// The process's recorder; there can be one.
fn recorder() -> anyhow::Result<PrometheusHandle> {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = RECORDER.get() {
        return Ok(handle.clone());
    }
    let builder = PrometheusBuilder::new().set_buckets(&SECONDS)?;
    let builder = builder.set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &SIZES)?;
    let handle = builder.install_recorder().context("metrics")?;
    Ok(RECORDER.get_or_init(|| handle).clone())
}
