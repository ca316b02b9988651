//! Logs: one line per event on stderr, for people or for machines.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// Starts logging. `RUST_LOG` chooses what is told; `default` does otherwise.
pub(crate) fn start(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start, in a test, keeps the first.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
    };
}
