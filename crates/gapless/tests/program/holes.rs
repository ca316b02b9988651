//! A window before a chain that loses, denies and refuses: whatever it does to sends, no nonce stays unused, each valid
//! request takes effect once, and each one that no endpoint takes ends with its reason (invariants *gapless*, *once* and
//! *patient*). Nonces that come free go to the next in the queue; only where nobody is queued do they go to a placeholder.

mod chain;
mod flaky;
mod orders;
mod slots;
mod taking;

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gapless_testkit::process::Signal;

use flaky::Flaky;
use orders::{EACH, Orders};

use crate::world::NAMES;

/// A window that fits into each submitter's queue four times, and what makes waiting short.
const PIPELINED: [(&str, &str); 3] = [
    ("GAPLESS__NONCE__MODE", "pipelined"),
    ("GAPLESS__NONCE__MAX_IN_FLIGHT", "250"),
    ("GAPLESS__NONCE__RECONCILE_INTERVAL", "1s"),
];

const RECYCLED: &str = "gapless_placeholder_total{reason=\"recycled\"}";
/// Requests of each submitter that come first, and leave room in its window.
const FIRST: u64 = 100;
/// How often a node is killed, unless the queue is empty before.
const KILLS: usize = 6;
/// Nonces that must be used in a life.
const PROGRESS: u64 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn holes_heal_and_free_nonces_go_to_the_next_in_the_queue() {
    let mut flaky = Flaky::start(2).await;
    // How long a call may wait for a connection follows from the lease.
    let env = [&PIPELINED[..], &[("GAPLESS__LEASE__DURATION", "10s")]].concat();
    flaky.world.serve(0, &env).await;
    let mut orders = Orders::default();
    orders.post(&flaky.world.setups[0], &flaky.accounts, 0..FIRST).await;
    // Who comes now could have a new nonce, or one that came free.
    flaky.has_a_free_nonce_and_no_queue(0).await;
    orders.post(&flaky.world.setups[0], &flaky.accounts, FIRST..EACH).await;
    flaky.all_ended(0).await;

    let placeholders = flaky.assert_healed(0, &orders).await;
    assert_eq!(flaky.counted(0, RECYCLED).await, placeholders);
    flaky.assert_struck();
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_heal_while_two_nodes_are_killed_in_turn_and_take_over_from_each_other() {
    let mut flaky = Flaky::start(1).await;
    flaky.world.serve(0, &PIPELINED).await;
    let mut orders = Orders::default();
    orders.post(&flaky.world.setups[0], &flaky.accounts, 0..EACH).await;
    let (mut counted, mut kills) = (0, 0);
    let survivor = loop {
        let (victim, heir) = (kills % 2, (kills + 1) % 2);
        let before = flaky.runs_every_lane(victim).await;
        // The heir starts when all is taken: what it runs later it has taken over.
        flaky.world.serve(heir, &PIPELINED).await;
        // Each gets somewhere in its life, and is killed a little later: at another moment each time.
        flaky.goes_beyond(victim, before.consumed + PROGRESS).await;
        tokio::time::sleep(Duration::from_millis(kills as u64 * 317 % 1_000)).await;
        let now = flaky.runs_every_lane(victim).await;
        println!("{} is killed with {now:?}", NAMES[victim]);
        assert!(now.open > 0, "it dies with work in hand");
        flaky.world.assert_none_counted(victim).await;
        counted += flaky.counted(victim, RECYCLED).await;
        flaky.world.signal(victim, Signal::SIGKILL);
        assert_eq!(flaky.world.gone(victim).await.signal(), Some(Signal::SIGKILL as i32));
        kills += 1;
        if kills == KILLS || now.queued == 0 {
            break heir;
        }
    };
    assert!(kills > 2, "each has taken over from the other");
    flaky.all_ended(survivor).await;

    let placeholders = flaky.assert_healed(survivor, &orders).await;
    counted += flaky.counted(survivor, RECYCLED).await;
    // What a node counted after it was asked last died with it.
    assert!(counted <= placeholders, "{counted} counted, {placeholders} on the chain");
    flaky.assert_struck();
}
