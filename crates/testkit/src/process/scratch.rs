//! A throw-away folder that vanishes with the process that made it.

use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::{fs::chown, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::unistd::{Uid, User};

use crate::{Error, Result};

/// Reads until the last writer is gone, then removes the folder. A server's children may still be writing
/// their last file while the folder is being emptied, hence the second and further tries.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM PIPE
cat >/dev/null
n=0
while [ -e "$1" ] && [ "$n" -lt 200 ]; do
  rm -rf -- "$1" 2>/dev/null || sleep 0.1
  n=$((n + 1))
done
"#;

/// The user a server runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Owner {
    /// The named user if we are root, who may become anybody; `None` (stay ourselves) if not.
    pub fn if_root(name: &str) -> Result<Option<Self>> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        let user = User::from_name(name)
            .map_err(|errno| Error::io(format!("looking up user {name}"))(errno.into()))?
            .ok_or_else(|| {
                Error::Misuse(format!("running as root, and there is no user {name} to become"))
            })?;
        Ok(Some(Self { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
    }
}

/// A throw-away folder, removed when it is dropped or this process ends, and all servers in it have stopped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    watchdog: Option<Child>,
    lifeline: Option<OwnedFd>,
}

impl ScratchDir {
    /// Makes the folder, belonging to `owner` where given.
    pub fn new(prefix: &str, owner: Option<Owner>) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir()
            .map_err(Error::io("making a throw-away folder"))?;
        if let Some(owner) = owner {
            chown(folder.path(), Some(owner.uid), Some(owner.gid))
                .map_err(Error::io(format!("handing {} to its user", folder.path().display())))?;
        }
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "scratch-watchdog"])
            .arg(folder.path())
            // Not in the folder, and not in a folder the caller may want to remove.
            .current_dir("/")
            // Its own group, so that an interrupt typed at the terminal leaves it to do its work.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io("starting the watchdog of a throw-away folder"))?;
        let lifeline = watchdog.stdin.take().map(OwnedFd::from);
        Ok(Self { path: folder.keep(), watchdog: Some(watchdog), lifeline })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One more writer to the watchdog's pipe: the folder stays while any of them is open.
    pub(super) fn hold(&self) -> io::Result<Stdio> {
        match &self.lifeline {
            Some(lifeline) => Ok(lifeline.try_clone()?.into()),
            None => Ok(Stdio::null()),
        }
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        self.lifeline = None;
        if let Some(watchdog) = self.watchdog.take() {
            collect(watchdog);
        }
    }
}

/// Collects a watchdog whose pipe was closed, without making the caller wait for it.
pub(super) fn collect(mut watchdog: Child) {
    // Should no thread be had, the watchdog stays uncollected until this process ends, which harms nobody.
    let _ = std::thread::Builder::new().name("watchdog-collect".into()).spawn(move || watchdog.wait());
}
