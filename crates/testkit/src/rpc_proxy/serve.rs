//! The HTTP side. On plain hyper, because hanging up without an answer is something a web framework exists to
//! prevent: here a service's error closes the connection.

use std::{io, sync::Arc, sync::atomic::Ordering};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{Shared, answer};

/// What becomes of one HTTP request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// This status and JSON text.
    Answer(StatusCode, Vec<u8>),
    /// The connection is closed.
    HangUp,
    /// Nothing, for ever.
    Silence,
}

pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| handle(request, Arc::clone(&shared)));
            // An error here is a client or a rule that hung up.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> io::Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    shared.requests.fetch_add(1, Ordering::Relaxed);
    // In a task of its own: a call that reached us reaches the node, even if the client gives up meanwhile.
    let outcome =
        tokio::spawn(async move { answer::to(&body, &shared).await }).await.map_err(io::Error::other)?;
    match outcome {
        Outcome::Answer(status, body) => {
            let mut response = Response::new(Full::new(body.into()));
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        }
        Outcome::HangUp => Err(io::Error::other("hung up by rule")),
        Outcome::Silence => std::future::pending().await,
    }
}
