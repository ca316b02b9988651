//! Free loopback ports for servers that are told their port instead of choosing one.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{Error, Result};

/// Below the range from which systems take the ports of outgoing connections. A server that is killed and
/// started again needs *its* port back, and must not find it lent to some client's connection meanwhile.
const FIRST: u16 = 20_000;
const COUNT: u32 = 12_000;

/// Each process begins somewhere else and walks on, so neighbours rarely meet and no port is given out twice.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
    let random = RandomState::new().hash_one(std::process::id());
    AtomicU32::new(u32::try_from(random % u64::from(COUNT)).unwrap_or_default())
});

/// A loopback TCP port nobody listens on just now.
pub fn free_port() -> Result<u16> {
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let Ok(offset) = u16::try_from(offset) else { continue };
        let port = FIRST + offset;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    any.map(|addr| addr.port()).map_err(Error::io("looking for a free loopback port"))
}
