//! The TCP proxy before a small echo server that remembers what reached it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gapless_testkit::{
    tcp_proxy::{Mode, TcpProxy, Trap},
    wait::eventually,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const SOON: Duration = Duration::from_secs(10);
const NOT_NOW: Duration = Duration::from_millis(200);

/// Echoes every chunk in capitals.
struct Echo {
    addr: SocketAddr,
    got: Arc<Mutex<Vec<u8>>>,
    open: Arc<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let echo = Self { addr: listener.local_addr().unwrap(), got: Arc::default(), open: Arc::default() };
        let (got, open) = (Arc::clone(&echo.got), Arc::downgrade(&echo.open));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (got, open) = (Arc::clone(&got), open.upgrade());
                tokio::spawn(async move {
                    let _open = open;
                    let mut chunk = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut chunk).await {
                        got.lock().unwrap().extend_from_slice(&chunk[..n]);
                        let answer = chunk[..n].to_ascii_uppercase();
                        if stream.write_all(&answer).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        echo
    }

    fn got(&self) -> String {
        String::from_utf8(self.got.lock().unwrap().clone()).unwrap()
    }

    fn open_connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

async fn connect(proxy: &TcpProxy) -> TcpStream {
    TcpStream::connect(proxy.addr()).await.unwrap()
}

async fn ask(client: &mut TcpStream, request: &str) -> String {
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; request.len()];
    client.read_exact(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Whether the connection has ended without a further byte.
async fn is_cut(client: &mut TcpStream) -> bool {
    match timeout(SOON, client.read(&mut [0; 64])).await.unwrap() {
        Ok(n) => n == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[tokio::test]
async fn pass_forwards_both_ways() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut client = connect(&proxy).await;
    assert_eq!(ask(&mut client, "hello").await, "HELLO");
    assert_eq!(ask(&mut client, "again").await, "AGAIN");
    assert_eq!(echo.got(), "helloagain");
}

#[tokio::test]
async fn delay_slows_both_ways() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut client = connect(&proxy).await;
    ask(&mut client, "quick").await;
    proxy.set_mode(Mode::Delay(NOT_NOW)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the network keeps real time")]
    let asked = Instant::now();
    assert_eq!(ask(&mut client, "slow").await, "SLOW");
    assert!(asked.elapsed() >= 2 * NOT_NOW);
}

#[tokio::test]
async fn a_black_hole_keeps_bytes_until_it_heals() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut old = connect(&proxy).await;
    ask(&mut old, "before").await;
    proxy.set_mode(Mode::BlackHole).await.unwrap();

    let mut new = connect(&proxy).await;
    assert!(timeout(NOT_NOW, ask(&mut new, "one")).await.is_err());
    assert!(timeout(NOT_NOW, ask(&mut old, "two")).await.is_err());
    assert_eq!(echo.got(), "before");

    proxy.set_mode(Mode::Pass).await.unwrap();
    let mut answer = [0; 3];
    timeout(SOON, new.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"ONE");
    timeout(SOON, old.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"TWO");
}

#[tokio::test]
async fn refuse_turns_new_connections_away_and_leaves_live_ones() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut live = connect(&proxy).await;
    ask(&mut live, "one").await;
    for _ in 0..3 {
        proxy.set_mode(Mode::Refuse).await.unwrap();
        let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(ask(&mut live, "two").await, "TWO");

        proxy.set_mode(Mode::Pass).await.unwrap();
        assert_eq!(ask(&mut connect(&proxy).await, "three").await, "THREE");
    }
}

#[tokio::test]
async fn cut_all_closes_both_sides_of_live_connections_only() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut clients = [connect(&proxy).await, connect(&proxy).await];
    for client in &mut clients {
        ask(client, "hello").await;
    }
    proxy.cut_all().await;
    for client in &mut clients {
        assert!(is_cut(client).await);
    }
    let closed = || async { (echo.open_connections() == 0).then_some(()) };
    eventually(SOON, "the server's side to close", closed).await.unwrap();
    assert_eq!(ask(&mut connect(&proxy).await, "new").await, "NEW");
}

#[tokio::test]
async fn a_held_request_reaches_the_server_only_when_released() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut client = connect(&proxy).await;
    let mut trap = proxy.arm(Trap::hold("commit"));
    assert_eq!(ask(&mut client, "begin;").await, "BEGIN;");

    client.write_all(b"commit;").await.unwrap();
    trap.fired().await.unwrap();
    assert!(is_cut(&mut client).await);
    // Even a general cut leaves the server waiting for it.
    proxy.cut_all().await;
    tokio::time::sleep(NOT_NOW).await;
    assert_eq!(echo.got(), "begin;");
    assert_eq!(echo.open_connections(), 1);

    trap.release().await.unwrap();
    assert_eq!(trap.server_answered().await.unwrap(), b"COMMIT;");
    assert_eq!(echo.got(), "begin;commit;");
}

#[tokio::test]
async fn a_held_request_is_lost_with_its_handle() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut client = connect(&proxy).await;
    let mut trap = proxy.arm(Trap::hold("commit"));
    client.write_all(b"commit;").await.unwrap();
    trap.fired().await.unwrap();
    drop(trap);
    let closed = || async { (echo.open_connections() == 0).then_some(()) };
    eventually(SOON, "the server's side to close", closed).await.unwrap();
    assert_eq!(echo.got(), "");
}

#[tokio::test]
async fn a_forwarded_request_is_answered_to_nobody() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut client = connect(&proxy).await;
    let mut trap = proxy.arm(Trap::forward("commit"));
    assert_eq!(ask(&mut client, "begin;").await, "BEGIN;");

    client.write_all(b"commit;").await.unwrap();
    assert!(is_cut(&mut client).await);
    assert_eq!(trap.server_answered().await.unwrap(), b"COMMIT;");
    assert_eq!(echo.got(), "begin;commit;");
}

#[tokio::test]
async fn chunk_borders_do_not_hide_a_pattern() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let mut client = connect(&proxy).await;
    let mut trap = proxy.arm(Trap::hold("commit"));
    // Waiting for each echo keeps the network from joining the pieces.
    for piece in ["x", "co", "mm", "i"] {
        ask(&mut client, piece).await;
    }
    client.write_all(b"t").await.unwrap();
    trap.fired().await.unwrap();
    assert_eq!(echo.got(), "xcommi");
    trap.release().await.unwrap();
    assert_eq!(trap.server_answered().await.unwrap(), b"T");
}

#[tokio::test]
async fn a_trap_springs_once_and_a_dropped_one_never() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    drop(proxy.arm(Trap::hold("commit")));
    let mut trap = proxy.arm(Trap::forward("commit"));
    let mut client = connect(&proxy).await;
    client.write_all(b"commit;").await.unwrap();
    trap.server_answered().await.unwrap();
    assert_eq!(ask(&mut connect(&proxy).await, "commit;").await, "COMMIT;");
}

#[test]
fn a_proxy_outlives_the_runtime_it_was_started_on() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let server = runtime();
    let echo = server.block_on(Echo::start());
    let (proxy, mut trap) = runtime().block_on(async {
        let proxy = TcpProxy::start(echo.addr).unwrap();
        let trap = proxy.arm(Trap::hold("commit"));
        (proxy, trap)
    });
    runtime().block_on(async {
        let mut client = connect(&proxy).await;
        client.write_all(b"commit;").await.unwrap();
        trap.fired().await.unwrap();
    });
    runtime().block_on(async {
        trap.release().await.unwrap();
        assert_eq!(trap.server_answered().await.unwrap(), b"COMMIT;");
    });
}

#[tokio::test]
async fn a_dropped_proxy_ends_every_wait() {
    let echo = Echo::start().await;
    let proxy = TcpProxy::start(echo.addr).unwrap();
    let addr = proxy.addr();
    let mut trap = proxy.arm(Trap::hold("commit"));
    drop(proxy);
    assert!(trap.fired().await.is_err());
    assert!(TcpStream::connect(addr).await.is_err());
}
