//! How a cluster is set up.

/// How to set up a cluster.
#[derive(Clone, Debug)]
pub struct PgOptions {
    /// Whether commits reach the disk before they are answered. Off by default: what was written survives the
    /// death of every process of the server all the same, and only a power cut would tell the difference.
    pub fsync: bool,
    /// Further settings, which win over the ones made here.
    pub settings: Vec<(String, String)>,
    /// How many connections the server accepts.
    pub max_connections: u32,
}

impl Default for PgOptions {
    fn default() -> Self {
        Self { fsync: false, settings: Vec::new(), max_connections: 200 }
    }
}

impl PgOptions {
    /// Adds one setting.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// All settings, later ones winning.
    pub(super) fn all(&self) -> Vec<(String, String)> {
        let fsync = if self.fsync { "on" } else { "off" };
        let own = [
            ("fsync", fsync.to_owned()),
            ("max_connections", self.max_connections.to_string()),
            // In the data folder, so that a killed server leaves nothing behind elsewhere.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
            // Compiling a query costs more than any query of a test.
            ("jit", "off".to_owned()),
        ];
        own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(self.settings.clone()).collect()
    }
}
