//! The HTTP surface over a real engine on the store in memory, without a socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod accepting;
mod commands;
mod hand;
mod leading;
mod looking;
mod openapi;
mod pages;
mod refusals;
mod routes;
mod strangers;
mod stuck;
mod submitters;
mod support;
