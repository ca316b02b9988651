//! Which schema a binary can live with.
//!
//! Migrations expand first and contract later, so binaries of two neighbouring generations run side by
//! side during a rolling restart. A schema names the oldest binary it still serves (`min_binary`); an
//! older one refuses to start instead of writing rows that nobody would understand.

/// The generation of this binary.
pub const BINARY: u32 = 1;

/// The newest migration this binary was built with, and so the oldest it can work on.
pub(crate) const MIGRATION: i64 = 1;
