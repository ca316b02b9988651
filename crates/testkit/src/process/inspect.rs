//! Looking at processes by id.
//!
//! `kill(pid, 0)` also succeeds for a process that has ended and was not yet collected by its parent, so the
//! questions here are answered from the process table, where such a process shows as a zombie.

use std::io;

/// One line of the process table.
struct Entry {
    pid: i32,
    parent: i32,
    state: char,
}

/// Whether the process exists and has not ended.
pub fn is_alive(pid: i32) -> bool {
    entry(pid).is_some_and(|entry| !matches!(entry.state, 'Z' | 'X'))
}

/// Whether the process has been stopped by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    entry(pid).is_some_and(|entry| matches!(entry.state, 'T' | 't'))
}

/// The processes whose parent is `pid` and which have not ended.
pub fn children(pid: i32) -> io::Result<Vec<i32>> {
    let table = table()?;
    Ok(table.iter().filter(|e| e.parent == pid && e.state != 'Z').map(|e| e.pid).collect())
}

#[cfg(target_os = "linux")]
fn entry(pid: i32) -> Option<Entry> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Entry { pid, parent, state })
}

#[cfg(target_os = "linux")]
fn table() -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for item in std::fs::read_dir("/proc")? {
        let name = item?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            entries.extend(entry(pid));
        }
    }
    Ok(entries)
}

#[cfg(not(target_os = "linux"))]
fn entry(pid: i32) -> Option<Entry> {
    table().ok()?.into_iter().find(|entry| entry.pid == pid)
}

#[cfg(not(target_os = "linux"))]
fn table() -> io::Result<Vec<Entry>> {
    let output = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat="]).output()?;
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let pid = fields.next()?.parse().ok()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Entry { pid, parent, state: fields.next()?.chars().next()? })
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}
