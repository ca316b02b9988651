//! A node that dies at a named point: whoever goes on, itself started again or another one, loses and doubles nothing.
//! Death is an abort in the middle of the code: no destructor runs, nothing is flushed, as with SIGKILL.

use std::os::unix::process::ExitStatusExt;

use gapless_engine::points::Point;
use gapless_testkit::process::Signal;
use gapless_testkit::rpc_proxy::{Fault, Rule};

use crate::support::{PATIENCE, Setup, program};
use crate::world::{Blocks, World, names};

/// Who goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The node itself, started again.
    Restart,
    /// Another one, which has been running; the dead one stays dead.
    Takeover,
}

async fn dies(world: &mut World, n: usize, point: Point) {
    let status = world.gone(n).await;
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{}: {status}", point.name());
}

/// One node gets to the point with work in every stage around it, and dies there.
async fn survives(mut world: World, point: Point, then: Then) {
    let armed_by = world.setups[0].folder.path().join("armed");
    let armed_path = armed_by.display().to_string();
    let arm = || std::fs::write(&armed_by, "").unwrap();
    let crash = [("GAPLESS_CRASH_AT", point.name()), ("GAPLESS_ARMED_BY", armed_path.as_str())];
    let ids = names("order", 4);

    // Whoever shall die has the lane before the other one is there.
    world.serve(0, &crash).await;
    world.post(0, &ids[0]).await;
    world.runs_the_lane(0, 0).await;
    let survivor = match (point, then) {
        (Point::DuringTakeover, _) => dies_while_taking_over(&mut world, then, &ids, &crash, arm).await,
        (_, Then::Restart) => 0,
        (_, Then::Takeover) => {
            world.serve(1, &[]).await;
            1
        }
    };
    let words = match point {
        Point::AfterRefusal => Some("txpool is full"),
        // What no node took is offered anew, bumps or not.
        Point::AfterBidCommit => Some("transaction underpriced"),
        _ => None,
    };
    if let Some(words) = words {
        let refused = Fault::ErrorWithoutForward { code: -32_000, message: words.into() };
        world.proxy.add(Rule::new("eth_sendRawTransaction", refused).times(1));
    }
    let commanded = matches!(point, Point::DuringCommand | Point::AfterCommand);
    if point != Point::DuringTakeover {
        arm();
        for id in &ids[1..] {
            // The answer may be lost with the node.
            let _ = world.try_post(0, id).await;
        }
        if commanded {
            world.command(0, "pause").await;
        }
        dies(&mut world, 0, point).await;
    }

    if then == Then::Restart {
        world.serve(survivor, &[]).await;
    }
    if commanded {
        // The command outlived the node that had it in hand.
        world.is_in(survivor, "paused").await;
        world.command(survivor, "resume").await;
        world.is_in(survivor, "ok").await;
    }
    world.assert_all_happened_once(survivor, &ids).await;
    if then == Then::Takeover {
        world.runs_the_lane(survivor, survivor).await;
    }
}

/// The node with the lane is killed, and its successor dies while it reads what was left. Who shall go on.
async fn dies_while_taking_over(
    world: &mut World,
    then: Then,
    ids: &[String],
    crash: &[(&str, &str)],
    arm: impl Fn(),
) -> usize {
    for id in &ids[1..] {
        world.post(0, id).await;
    }
    let (heir, survivor) = match then {
        Then::Restart => (0, 0),
        Then::Takeover => (1, 2),
    };
    world.signal(0, Signal::SIGKILL);
    assert_eq!(world.gone(0).await.signal(), Some(Signal::SIGKILL as i32));
    arm();
    world.spawn(heir, crash);
    if then == Then::Takeover {
        // Started as soon as the heir has the lane: it must not be the heir itself.
        dies(world, heir, Point::DuringTakeover).await;
        world.serve(survivor, &[]).await;
    } else {
        dies(world, heir, Point::DuringTakeover).await;
    }
    survivor
}

/// One test per point and way to go on.
macro_rules! at_every_point {
    ($($name:ident = $point:ident,)+) => {
        mod a_node_that_is_started_again_sends_once_after_dying {
            use super::*;
            $(#[tokio::test] async fn $name() {
                survives(World::on_postgres(Blocks::Ticking).await, Point::$point, Then::Restart).await;
            })+
        }

        mod another_node_takes_over_and_sends_once_after_one_died {
            use super::*;
            $(#[tokio::test] async fn $name() {
                survives(World::on_postgres(Blocks::Ticking).await, Point::$point, Then::Takeover).await;
            })+
        }

        mod a_node_on_sqlite_that_is_started_again_sends_once_after_dying {
            use super::*;
            $(#[tokio::test] async fn $name() {
                survives(World::on_sqlite(Blocks::Ticking).await, Point::$point, Then::Restart).await;
            })+
        }

        #[test]
        fn every_point_has_its_tests() {
            assert_eq!([$(Point::$point),+], Point::ALL);
        }
    };
}

at_every_point! {
    after_accept_commit = AfterAcceptCommit,
    after_prepare = AfterPrepare,
    after_bind_commit_before_send = AfterBindCommit,
    after_a_dearer_bid_is_stored_before_it_is_sent = AfterBidCommit,
    after_send = AfterSend,
    after_a_refusal_before_its_record = AfterRefusal,
    after_receipt_before_store = AfterReceipt,
    after_store = AfterReceiptStored,
    at_confirm = AtConfirm,
    during_takeover_load = DuringTakeover,
    during_a_command = DuringCommand,
    after_a_command_before_what_follows = AfterCommand,
}

#[tokio::test]
async fn a_point_that_is_not_there_is_named_with_those_that_are() {
    let setup = Setup::new("http://127.0.0.1:1");
    let run =
        program().args(["serve", "--config"]).arg(setup.config()).env("GAPLESS_CRASH_AT", "nowhere").output();
    let output = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("after-bind-commit"), "{said}");
}
