//! House rules, kept as tests.
//!
//! This library holds no code. Its test target (`tests/tidy/`) reads Cargo's view of the workspace and the
//! files in the tree, and fails with the file, the line and the remedy:
//!
//! - `directions`: which workspace crate may depend on which;
//! - `absence`: external crates that must never reach `core`, `engine` or `api`;
//! - `sources`: module docs, file length, unfinished code, silenced lints;
//! - `links`: relative links in the texts point at something that exists.
//!
//! Every rule is a pure function over its input, with a test beside it that feeds it a bad sample: a rule that
//! cannot fail guards nothing.
