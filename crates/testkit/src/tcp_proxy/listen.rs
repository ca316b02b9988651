//! Accepting connections, or refusing them for real: a refused client must see what a dead server shows, so
//! the listening socket is closed and opened again.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, net::TcpSocket, sync::watch};

use super::{Mode, Shared, connection};

const AGAIN: Duration = Duration::from_millis(20);

pub(super) fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // Connections that were cut linger in the system's tables and must not keep us from our port.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(1024)
}

pub(super) async fn serve(
    addr: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
    applied: watch::Sender<Mode>,
) {
    let mut mode = shared.mode.subscribe();
    let mut listener = Some(listener);
    loop {
        let wanted = *mode.borrow_and_update();
        if wanted == Mode::Refuse {
            listener = None;
        } else if listener.is_none() {
            match bind(addr) {
                Ok(bound) => listener = Some(bound),
                Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            }
        }
        applied.send_replace(wanted);

        tokio::select! {
            changed = mode.changed() => if changed.is_err() { return },
            accepted = accept(listener.as_ref()) => if let Ok(client) = accepted {
                // Subscribed here, not in the task: a cut must reach everything accepted before it.
                let cut = shared.cut_signal();
                tokio::spawn(connection::run(client, Arc::clone(&shared), cut));
            },
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}
