//! The dual-active window: A is stopped past its lease, B takes over and finishes, and A wakes up believing what it
//! believed before. The local guard keeps it from trying; the fence of the database keeps it from succeeding.

use gapless_engine::points::Point;
use gapless_testkit::process::Signal;
use gapless_testkit::rpc_proxy::{Fault, Rule};
use gapless_testkit::wait::eventually;

use crate::audit::Audit;
use crate::support::PATIENCE;
use crate::world::{Blocks, World, names};

const A: usize = 0;
const B: usize = 1;

/// A has the lane and four requests in it; B runs beside it. The names of the requests.
async fn with_work(world: &mut World, env: &[(&str, &str)]) -> Vec<String> {
    let ids = names("order", 4);
    world.serve(A, env).await;
    world.post(A, &ids[0]).await;
    world.runs_the_lane(A, A).await;
    world.serve(B, &[]).await;
    ids
}

/// Lines of A's log that tell of an applied write.
fn written_by_a(world: &World) -> usize {
    world.log(A).lines().filter(|line| line.contains("\"message\":\"written\"")).count()
}

/// After B has finished, A wakes; `noticed` is how it can be seen that A has had its turn.
async fn a_wakes_and_changes_nothing(
    world: &World,
    audit: &mut Audit,
    ids: &[String],
    noticed: impl AsyncFn() -> Option<()>,
) {
    world.assert_all_happened_once(B, ids).await;
    let (before, told) = (audit.writes().await, written_by_a(world));
    assert!(audit.tokens().await.len() > 1, "both have written");
    world.signal(A, Signal::SIGCONT);
    eventually(PATIENCE, "the woken node to notice", || async { noticed().await }).await.unwrap();
    assert_eq!(audit.writes().await, before, "the woken node wrote");
    assert_eq!(written_by_a(world), told, "the woken node believes that it wrote");
    audit.assert_fenced().await;
    world.runs_the_lane(A, B).await;
    world.assert_all_happened_once(A, ids).await;
}

#[tokio::test]
async fn dual_active_window_a_node_stopped_past_its_lease_wakes_and_writes_nothing() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    let mut audit = Audit::start(world.db.as_ref().unwrap()).await;
    let ids = with_work(&mut world, &[]).await;
    for id in &ids {
        world.post(A, id).await;
    }
    world.signal(A, Signal::SIGSTOP);
    world.runs_the_lane(B, B).await;
    // It notices by its own clock, or by the answer to its renewal, whichever comes first.
    let ends = ["\"message\":\"lane lost\"", "\"message\":\"lane released\""];
    let gave_up = async || ends.iter().any(|end| world.log(A).contains(end)).then_some(());
    a_wakes_and_changes_nothing(&world, &mut audit, &ids, gave_up).await;
}

/// A has its guard switched off and stops right before a certain write.
async fn without_guard(point: Point) {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    let mut audit = Audit::start(world.db.as_ref().unwrap()).await;
    let armed_by = world.setups[A].folder.path().join("armed");
    let armed_path = armed_by.display().to_string();
    let env = [
        ("GAPLESS_TEST_GUARD", "off"),
        ("GAPLESS_FREEZE_AT", point.name()),
        ("GAPLESS_ARMED_BY", armed_path.as_str()),
    ];
    let ids = with_work(&mut world, &env).await;
    if point == Point::AfterRefusal {
        let full = Fault::ErrorWithoutForward { code: -32_000, message: "txpool is full".into() };
        world.proxy.add(Rule::new("eth_sendRawTransaction", full).times(1));
    }
    std::fs::write(&armed_by, "").unwrap();
    for id in &ids {
        world.post(B, id).await;
    }
    if point == Point::DuringCommand {
        world.command(B, "pause").await;
    }
    world.runs_the_lane(B, B).await;
    if point == Point::DuringCommand {
        world.is_in(B, "paused").await;
        world.command(B, "resume").await;
    }
    let fenced = async || {
        let metrics = world.setups[A].text("/metrics").await?;
        metrics.lines().any(|line| line == "gapless_lease_fenced_total{operation=\"commit\"} 1").then_some(())
    };
    a_wakes_and_changes_nothing(&world, &mut audit, &ids, fenced).await;
}

/// One test per kind of critical write.
macro_rules! fenced {
    ($($name:ident = $point:ident,)+) => {
        $(#[tokio::test] async fn $name() {
            without_guard(Point::$point).await;
        })+
    };
}

fenced! {
    dual_active_window_without_its_guard_the_bind_of_the_old_node_is_fenced = AfterPrepare,
    dual_active_window_without_its_guard_the_refusal_of_the_old_node_is_fenced = AfterRefusal,
    dual_active_window_without_its_guard_the_receipt_of_the_old_node_is_fenced = AfterReceipt,
    dual_active_window_without_its_guard_the_end_of_the_old_node_is_fenced = AtConfirm,
    dual_active_window_without_its_guard_the_command_of_the_old_node_is_fenced = DuringCommand,
}
