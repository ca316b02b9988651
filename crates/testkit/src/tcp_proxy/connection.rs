//! One proxied connection.

use std::{io, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::{Mode, Shared, trap::Sprung};

const CHUNK: usize = 64 * 1024;
/// Enough for any pattern a test would write.
pub(super) const HISTORY: usize = 4 * 1024;

pub(super) async fn run(client: TcpStream, shared: Arc<Shared>, mut cut: watch::Receiver<bool>) {
    let sprung = tokio::select! {
        // A dropped sender means that the proxy is going away.
        _ = cut.wait_for(|cut| *cut) => return,
        sprung = proxy(client, &shared) => sprung,
    };
    // From here on the connection has no client, and belongs to the trap's handle.
    drop(cut);
    if let Ok(Some((sprung, server))) = sprung {
        sprung.play(server).await;
    }
}

type Server = (OwnedReadHalf, OwnedWriteHalf);

/// Carries bytes both ways until either side is done, or a trap springs. The client's side is closed by the
/// time this returns.
async fn proxy(client: TcpStream, shared: &Shared) -> io::Result<Option<(Sprung, Server)>> {
    let mut mode = shared.mode.subscribe();
    pass_gate(&mut mode).await;
    let server = TcpStream::connect(shared.upstream).await?;
    // Small requests must not wait for each other's acknowledgements.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();

    let sprung = {
        let down = copy(&mut server_read, &mut client_write, mode.clone());
        let up = requests(&mut client_read, &mut server_write, shared, mode);
        tokio::pin!(down, up);
        tokio::select! {
            down = &mut down => { down?; None }
            up = &mut up => match up? {
                Some(sprung) => Some(sprung),
                // The client has said all it will; it may still be listening.
                None => { down.await?; None }
            },
        }
    };
    Ok(sprung.map(|sprung| (sprung, (server_read, server_write))))
}

/// Carries requests to the server until the client has no more, or a trap springs.
async fn requests(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    shared: &Shared,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<Option<Sprung>> {
    let mut chunk = vec![0; CHUNK];
    let mut stream = Vec::new();
    loop {
        let n = from.read(&mut chunk).await?;
        pass_gate(&mut mode).await;
        if n == 0 {
            to.shutdown().await?;
            return Ok(None);
        }
        let bytes = &chunk[..n];
        // A pattern may lie across the border of two chunks, wherever the network happened to put it.
        let known = stream.len();
        stream.extend_from_slice(bytes);
        if let Some(sprung) = shared.traps.spring(&stream, known) {
            return Ok(Some(sprung));
        }
        stream.drain(..stream.len().saturating_sub(HISTORY));
        to.write_all(bytes).await?;
    }
}

async fn copy(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let n = from.read(&mut chunk).await?;
        pass_gate(&mut mode).await;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..n]).await?;
    }
}

/// Waits as long as the mode wants the next bytes to wait.
async fn pass_gate(mode: &mut watch::Receiver<Mode>) {
    let now = mode.wait_for(|mode| *mode != Mode::BlackHole).await.map(|mode| *mode);
    match now {
        Ok(Mode::Delay(by)) => tokio::time::sleep(by).await,
        Ok(_) => {}
        // The proxy is gone, and its tasks with it.
        Err(_) => std::future::pending().await,
    }
}
