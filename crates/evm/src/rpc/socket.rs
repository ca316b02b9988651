//! A WebSocket over the HTTP client that everything else goes over: one place decides about TLS, proxies and redirects.

use reqwest::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use reqwest::{StatusCode, Upgraded};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::endpoint::{Http, trouble};
use super::{Trouble, TroubleKind};

/// No honest notice of a head is longer.
const MAX_MESSAGE: usize = 4 << 20;

pub(super) type Socket = WebSocketStream<Upgraded>;

impl Http {
    /// Opens a socket, within the time an exchange may take.
    pub(super) async fn socket(&self) -> Result<Socket, Trouble> {
        let late = |_| Trouble::new(TroubleKind::TimedOut, format!("no socket within {:?}", self.timeout));
        timeout(self.timeout, self.shake_hands()).await.map_err(late)?
    }

    async fn shake_hands(&self) -> Result<Socket, Trouble> {
        let key = generate_key();
        let request = self.client.get(self.url.clone());
        let request = request.header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
        let request = request.header(SEC_WEBSOCKET_VERSION, "13").header(SEC_WEBSOCKET_KEY, &key);
        let response = request.send().await.map_err(trouble)?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let kind = TroubleKind::Status { status: status.as_u16(), retry_after: None };
            return Err(Trouble::new(kind, format!("HTTP {status} where a socket was asked for")));
        }
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| accepted.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
        {
            return Err(Trouble::malformed("a socket that answers another handshake"));
        }
        let stream = response.upgrade().await.map_err(trouble)?;
        let limits =
            WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(limits)).await)
    }
}
