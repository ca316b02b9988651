//! Processor time and memory of servers, read from `/proc`.
//!
//! A backend of PostgreSQL, which has one thread, is read from `schedstat`, which counts nanoseconds; `stat` counts hundredths of a second,
//! too coarse for a phase of two seconds spread over several backends. What ended meanwhile (autovacuum workers,
//! closed sessions) is found in the postmaster's sum over its reaped children, which only `stat` has.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::{Error, Result};

/// What `/proc/<pid>/stat` counts in: USER_HZ, 100 on every Linux that PostgreSQL is packaged for.
const TICK: Duration = Duration::from_millis(10);

/// Processor time used so far.
#[derive(Debug, Clone, Default)]
pub struct CpuSample {
    /// Of each backend of the measured sessions.
    backends: HashMap<i32, Duration>,
    /// Of the whole server, background processes and ended ones included.
    all: Duration,
}

/// Processor time used between two samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuUsed {
    /// By the backends of the measured sessions.
    pub backends: Duration,
    /// By the whole server.
    pub all: Duration,
}

impl CpuSample {
    /// Reads the server whose postmaster is given; `backends` are the measured sessions.
    pub fn take(postmaster: i32, backends: &[i32]) -> Result<Self> {
        let mut all = living(postmaster).ok_or_else(|| unread(postmaster))?;
        all += reaped(postmaster).ok_or_else(|| unread(postmaster))?;
        let mut of_backends = HashMap::new();
        for child in children(postmaster)? {
            // One that ended since it was listed is in the postmaster's sum the next time.
            let Some(used) = living(child) else { continue };
            all += used;
            if backends.contains(&child) {
                of_backends.insert(child, used);
            }
        }
        Ok(Self { backends: of_backends, all })
    }

    /// What was used from `before` until this sample. A session opened meanwhile counts from its birth.
    #[must_use]
    pub fn since(&self, before: &Self) -> CpuUsed {
        let used = |(pid, now): (&i32, &Duration)| {
            now.saturating_sub(before.backends.get(pid).copied().unwrap_or_default())
        };
        CpuUsed { backends: self.backends.iter().map(used).sum(), all: self.all.saturating_sub(before.all) }
    }
}

/// Processor time of a process with all its threads, ended ones included.
pub fn of_process(pid: i32) -> Result<Duration> {
    ticks(pid, 0).ok_or_else(|| unread(pid))
}

/// The most memory a process has held, in bytes.
pub fn peak_memory(pid: i32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    parse_peak(&status).ok_or_else(|| unread(pid))
}

fn parse_peak(status: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn unread(pid: i32) -> Error {
    Error::Misuse(format!("what process {pid} has used cannot be read from /proc"))
}

fn children(pid: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))?;
    Ok(list.split_whitespace().filter_map(|child| child.parse().ok()).collect())
}

fn living(pid: i32) -> Option<Duration> {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
    let nanos = schedstat.as_deref().and_then(|text| text.split(' ').next()).and_then(|n| n.parse().ok());
    match nanos {
        Some(nanos) if nanos > 0 => Some(Duration::from_nanos(nanos)),
        // A kernel without scheduler statistics.
        _ => ticks(pid, 0),
    }
}

fn reaped(pid: i32) -> Option<Duration> {
    ticks(pid, 2)
}

/// `utime + stime` at offset 0, `cutime + cstime` at offset 2.
fn ticks(pid: i32, offset: usize) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_ticks(&stat, offset)
}

fn parse_ticks(stat: &str, offset: usize) -> Option<Duration> {
    // The name in parentheses may hold spaces and parentheses itself; utime is the twelfth field after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11 + offset).map(str::parse::<u32>);
    let ticks = fields.next()?.ok()? + fields.next()?.ok()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_its_name() {
        let line = "7 (postgres: a) b)) S 1 7 7 0 -1 4194560 1 2 3 4 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!(parse_ticks(line, 0), Some(Duration::from_millis(330)));
        assert_eq!(parse_ticks(line, 2), Some(Duration::from_millis(770)));
    }

    #[test]
    fn the_peak_of_memory_is_read_in_bytes() {
        assert_eq!(parse_peak("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t     120 kB\n"), Some(122_880));
        assert_eq!(parse_peak("Name:\tx\n"), None);
    }
}
