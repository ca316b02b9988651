//! As little HTTP as a load needs: one connection that is kept, a POST at a time. What a client of many features spends per
//! request would be taken from what is measured, since all share the machine's cores.

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No honest answer has more of them.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// A connection to a node.
pub(super) struct Poster {
    stream: TcpStream,
    head: String,
    buffer: Vec<u8>,
}

impl Poster {
    /// Connects, to post to one path of `http://host:port`.
    pub(super) async fn connect(url: &str, path: &str) -> anyhow::Result<Self> {
        let host = url.strip_prefix("http://").context("the load speaks plain HTTP only")?;
        let stream = TcpStream::connect(host).await.context("connecting to the node")?;
        stream.set_nodelay(true)?;
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n");
        Ok(Self { stream, head, buffer: Vec::new() })
    }

    /// Posts; status and body of the answer.
    pub(super) async fn post(&mut self, body: &[u8]) -> anyhow::Result<(u16, &[u8])> {
        self.buffer.clear();
        self.buffer.extend_from_slice(self.head.as_bytes());
        self.buffer.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        self.buffer.extend_from_slice(body);
        self.stream.write_all(&self.buffer).await.context("posting")?;
        self.buffer.clear();
        let start = loop {
            if let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(self.buffer.len() <= MAX_HEADER_BYTES, "the answer's head does not end");
            self.read_more().await?;
        };
        let (status, length) = head(&self.buffer[..start])?;
        while self.buffer.len() < start + length {
            self.read_more().await?;
        }
        Ok((status, &self.buffer[start..start + length]))
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.context("reading an answer")?;
        ensure!(read > 0, "the node closed the connection");
        Ok(())
    }
}

/// An answer's status and the length of its body.
fn head(bytes: &[u8]) -> anyhow::Result<(u16, usize)> {
    let text = std::str::from_utf8(bytes).context("an answer's head")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let Some(status) = status else { bail!("an answer without a status: {text}") };
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    });
    Ok((status, length.context("an answer without a length")?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_head_tells_status_and_length_whatever_its_case() {
        let head = |text: &str| super::head(text.as_bytes());
        let told = head("HTTP/1.1 202 Accepted\r\nX: y\r\nContent-Length: 17\r\n\r\n").unwrap();
        assert_eq!(told, (202, 17));
        assert!(head("HTTP/1.1 202 Accepted\r\n\r\n").is_err());
        assert!(head("nonsense\r\ncontent-length: 1\r\n\r\n").is_err());
    }
}
