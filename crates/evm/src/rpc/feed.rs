//! Notices of new heads over WebSocket, as hints.
//!
//! What a notice says is not believed: it only makes somebody look. So nobody checks who sends it, a lost one costs
//! nothing but the wait for the next poll, and trouble with a socket is trouble for nobody else.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::endpoint::Http;
use super::health::pause;
use super::socket::Socket;
use super::{Trouble, TroubleKind};

/// How long to wait before a socket is opened again.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(30);
/// How often to ask whether the other end is there.
const PING: Duration = Duration::from_secs(20);
/// How long a socket may bring nothing at all, not even an answer to that.
const SILENCE: Duration = Duration::from_secs(60);

const SUBSCRIBE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;

/// The feeds of a chain. They start with the first who waits, and end with this.
#[derive(Debug)]
pub(crate) struct Feed {
    sources: Vec<Arc<Http>>,
    hints: Arc<Notify>,
    listeners: OnceLock<JoinSet<()>>,
}

impl Feed {
    pub(crate) fn new(sources: Vec<Arc<Http>>) -> Self {
        Self { sources, hints: Arc::default(), listeners: OnceLock::new() }
    }

    /// Waits for a hint since the last one that was taken.
    pub(crate) async fn hint(&self) {
        self.listeners.get_or_init(|| {
            let listen = |http: &Arc<Http>| follow(Arc::clone(http), Arc::clone(&self.hints));
            self.sources.iter().map(listen).collect()
        });
        self.hints.notified().await;
    }
}

/// Listens for ever, on one socket after another.
async fn follow(http: Arc<Http>, hints: Arc<Notify>) {
    let mut failures = 0u32;
    loop {
        let mut heard = false;
        let trouble = listen(&http, || {
            heard = true;
            hints.notify_one();
        })
        .await;
        failures = if heard { 1 } else { failures.saturating_add(1) };
        tracing::debug!(endpoint = http.name(), %trouble, "no more hints of heads from this socket");
        sleep(pause(failures, PAUSES, fastrand::f64())).await;
    }
}

/// Subscribes and listens until that ends; says why it did.
async fn listen(http: &Http, mut hint: impl FnMut()) -> Trouble {
    let (mut socket, subscription) = match subscribe(http).await {
        Ok(subscribed) => subscribed,
        Err(trouble) => return trouble,
    };
    tracing::debug!(endpoint = http.name(), subscription, "hints of heads come from this socket");
    // What came before the subscription was not told.
    hint();
    let mut ping = interval_at(Instant::now() + PING, PING);
    let mut heard = Instant::now();
    loop {
        let message = tokio::select! {
            message = next(&mut socket) => message,
            _ = ping.tick() => {
                if heard.elapsed() > SILENCE {
                    return Trouble::new(TroubleKind::TimedOut, "the socket is silent");
                }
                match timeout(PING, socket.send(Message::Ping(Default::default()))).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => return broken(&error),
                    Err(_) => return Trouble::new(TroubleKind::TimedOut, "the socket takes nothing"),
                }
            }
        };
        heard = Instant::now();
        match message {
            Ok(Some(Said::Notice)) => hint(),
            Ok(_) => {}
            Err(trouble) => return trouble,
        }
    }
}

async fn subscribe(http: &Http) -> Result<(Socket, String), Trouble> {
    let mut socket = http.socket().await?;
    let answer = async {
        socket.send(Message::text(SUBSCRIBE)).await.map_err(|error| broken(&error))?;
        loop {
            match next(&mut socket).await? {
                Some(Said::Subscribed(id)) => return Ok(id),
                Some(Said::Refused(text)) => return Err(Trouble::malformed(text)),
                Some(Said::Notice) | None => {}
            }
        }
    };
    let late = |_| Trouble::new(TroubleKind::TimedOut, "no answer to the subscription");
    let id = timeout(http.timeout, answer).await.map_err(late)??;
    Ok((socket, id))
}

/// What a message can mean here.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Notice,
    Subscribed(String),
    Refused(String),
}

/// The next message; none if it means nothing here.
async fn next(socket: &mut Socket) -> Result<Option<Said>, Trouble> {
    match socket.next().await {
        None | Some(Ok(Message::Close(_))) => Err(Trouble::new(TroubleKind::Broken, "the socket was closed")),
        Some(Err(error)) => Err(broken(&error)),
        Some(Ok(Message::Text(text))) => Ok(said(&text)),
        Some(Ok(_)) => Ok(None),
    }
}

fn said(text: &str) -> Option<Said> {
    #[derive(Deserialize)]
    struct Wire {
        method: Option<String>,
        result: Option<String>,
        error: Option<serde_json::Value>,
    }
    let wire: Wire = serde_json::from_str(text).ok()?;
    match wire {
        Wire { method: Some(method), .. } => (method == "eth_subscription").then_some(Said::Notice),
        Wire { error: Some(error), .. } => Some(Said::Refused(format!("no subscription: {error}"))),
        Wire { result: Some(id), .. } => Some(Said::Subscribed(id)),
        _ => None,
    }
}

fn broken(error: &tokio_tungstenite::tungstenite::Error) -> Trouble {
    Trouble::new(TroubleKind::Broken, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_and_what_a_head_says_is_not_read() {
        let notice =
            r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{}}}"#;
        assert_eq!(said(notice), Some(Said::Notice));
        let absurd = r#"{"method":"eth_subscription","params":[null]}"#;
        assert_eq!(said(absurd), Some(Said::Notice));
        assert_eq!(said(r#"{"id":1,"result":"0xab"}"#), Some(Said::Subscribed("0xab".into())));
        let refused = said(r#"{"id":1,"error":{"code":-32601,"message":"no such method"}}"#);
        assert!(matches!(refused, Some(Said::Refused(text)) if text.contains("no such method")));
        for nothing in ["", "[]", "{}", "null", r#"{"method":"other"}"#, r#"{"result":7}"#] {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }
}
