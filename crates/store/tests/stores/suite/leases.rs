//! Leases: who may act, by the store's clock.

use std::time::Duration;

use gapless_core::change::Verdict;
use gapless_core::command::{NewCommand, Verb};
use gapless_core::ids::{CommandId, FencingToken};
use gapless_core::lease::{AcquireKind, Grant, LeaseTerms, Owner};
use gapless_core::ports::store::{Acquired, Parting, Renewal};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_testkit::fixtures::{self, TestClock, owner};
use uuid::Uuid;

use crate::world::World;

async fn acquire(w: &World, owner: &Owner, submitter: &SubmitterId) -> Acquired {
    w.store.acquire(owner, std::slice::from_ref(submitter), &w.terms()).await.unwrap().remove(0)
}

fn held(acquired: Acquired) -> (AcquireKind, Grant) {
    match acquired {
        Acquired::Held { kind, grant } => (kind, grant),
        other => panic!("{other:?}"),
    }
}

pub async fn the_first_lease_is_an_insert_and_the_next_a_renewal(w: &World) {
    let submitter = w.submitter(1).await;
    let a = owner("a", 1).unwrap();
    let (kind, first) = held(acquire(w, &a, &submitter).await);
    assert_eq!((kind, first.token()), (AcquireKind::Insert, FencingToken(1)));
    assert_eq!(first.expires_at(), TestClock::START.plus(w.terms().duration()));
    w.advance(Duration::from_secs(4)).await;
    let (kind, second) = held(acquire(w, &a, &submitter).await);
    assert_eq!((kind, second.token()), (AcquireKind::Renew, FencingToken(1)));
    assert_eq!(second.expires_at(), first.expires_at().plus(Duration::from_secs(4)));
    assert_eq!(acquire(w, &a, &fixtures::submitter(77)).await, Acquired::UnknownSubmitter);
}

pub async fn another_node_is_not_owner_until_the_lease_and_its_allowance_are_over(w: &World) {
    let submitter = w.submitter(1).await;
    let (a, b) = (owner("a", 1).unwrap(), owner("b", 2).unwrap());
    let (_, grant) = held(acquire(w, &a, &submitter).await);
    let refused = Acquired::NotOwner { owner: a, expires_at: grant.expires_at() };
    assert_eq!(acquire(w, &b, &submitter).await, refused);
    w.advance(Duration::from_millis(10_999)).await;
    assert_eq!(acquire(w, &b, &submitter).await, refused, "expired, but within the allowance");
    w.advance(Duration::from_millis(1)).await;
    let (kind, taken) = held(acquire(w, &b, &submitter).await);
    assert_eq!((kind, taken.token()), (AcquireKind::Takeover, FencingToken(2)));
}

pub async fn an_own_but_expired_lease_gets_a_new_token(w: &World) {
    let submitter = w.submitter(1).await;
    let a = owner("a", 1).unwrap();
    held(acquire(w, &a, &submitter).await);
    w.advance(Duration::from_secs(11)).await;
    let (kind, grant) = held(acquire(w, &a, &submitter).await);
    assert_eq!((kind, grant.token()), (AcquireKind::Takeover, FencingToken(2)));
}

pub async fn two_processes_with_one_node_id_are_two_owners(w: &World) {
    let submitter = w.submitter(1).await;
    let (first, second) = (owner("a", 1).unwrap(), owner("a", 2).unwrap());
    let (_, grant) = held(acquire(w, &first, &submitter).await);
    let refused = Acquired::NotOwner { owner: first, expires_at: grant.expires_at() };
    assert_eq!(acquire(w, &second, &submitter).await, refused);
    w.advance(Duration::from_secs(11)).await;
    assert_eq!(held(acquire(w, &second, &submitter).await).1.token(), FencingToken(2));
}

pub async fn renewing_keeps_the_token_and_fails_once_expired_or_taken(w: &World) {
    let (one, two) = (w.submitter(1).await, w.submitter(2).await);
    let (a, b) = (owner("a", 1).unwrap(), owner("b", 2).unwrap());
    let grants = [held(acquire(w, &a, &one).await).1, held(acquire(w, &a, &two).await).1];
    w.advance(Duration::from_secs(5)).await;
    let renewed = w.store.renew(&grants, &w.terms()).await.unwrap();
    for (old, new) in grants.iter().zip(&renewed) {
        let Renewal::Renewed(new) = new else { panic!("{new:?}") };
        assert_eq!((new.token(), new.submitter()), (old.token(), old.submitter()));
        assert_eq!(new.expires_at(), TestClock::START.plus(Duration::from_secs(15)));
    }
    w.advance(Duration::from_secs(11)).await;
    held(acquire(w, &b, &one).await);
    let answers = w.store.renew(&grants, &w.terms()).await.unwrap();
    assert_eq!(answers, [Renewal::Lost, Renewal::Lost], "one taken, one expired");
}

pub async fn a_released_lease_is_free_at_once(w: &World) {
    let (one, two) = (w.submitter(1).await, w.submitter(2).await);
    let (a, b) = (owner("a", 1).unwrap(), owner("b", 2).unwrap());
    let grants = [
        (held(acquire(w, &a, &one).await).1, Parting::Unfinished),
        (held(acquire(w, &a, &two).await).1, Parting::Idle),
    ];
    assert_eq!(w.store.release(&grants).await.unwrap(), [true, true]);
    assert_eq!(
        w.store.claimable(&w.terms(), None, 10).await.unwrap(),
        vec![one.clone()],
        "an idle lane wants nobody"
    );
    let (kind, grant) = held(acquire(w, &b, &one).await);
    assert_eq!((kind, grant.token()), (AcquireKind::Takeover, FencingToken(2)));
    assert_eq!(w.store.release(&grants[..1]).await.unwrap(), [false], "not ours any more");
    assert!(matches!(acquire(w, &a, &one).await, Acquired::NotOwner { .. }));
}

pub async fn a_lease_from_before_the_clock_stepped_back_may_be_taken(w: &World) {
    let submitter = w.submitter(1).await;
    let (a, b) = (owner("a", 1).unwrap(), owner("b", 2).unwrap());
    let long = LeaseTerms::new(Duration::from_secs(1_000), Duration::from_secs(1)).unwrap();
    w.store.acquire(&a, std::slice::from_ref(&submitter), &long).await.unwrap();
    let (kind, _) = held(acquire(w, &b, &submitter).await);
    assert_eq!(kind, AcquireKind::Takeover, "it ends more than ten durations ahead");
}

pub async fn raising_the_token_fences_what_was_drafted_before(w: &World) {
    let submitter = w.submitter(1).await;
    let mut before = w.lane("a", 1, &submitter).await;
    let (kind, raised) = held(w.store.raise_token(&before.grant, &w.terms()).await.unwrap());
    assert_eq!((kind, raised.token()), (AcquireKind::Takeover, before.grant.token().next()));
    assert_eq!(before.commit(w.store.as_ref(), |_| {}).await.unwrap(), Verdict::Fenced);
    before.grant = raised;
    assert!(matches!(before.commit(w.store.as_ref(), |_| {}).await.unwrap(), Verdict::Applied { .. }));

    let other = owner("b", 2).unwrap();
    w.advance(Duration::from_secs(11)).await;
    held(acquire(w, &other, &submitter).await);
    let late = w.store.raise_token(&before.grant, &w.terms()).await.unwrap();
    assert!(matches!(late, Acquired::NotOwner { .. }), "somebody else's lease cannot be raised: {late:?}");
}

pub async fn work_without_a_live_lease_is_claimable_and_nothing_else(w: &World) {
    let (queued, commanded, orphaned, idle, held_by_a) = (
        w.submitter(1).await,
        w.submitter(2).await,
        w.submitter(3).await,
        w.submitter(4).await,
        w.submitter(5).await,
    );
    w.accepted(&queued, 2).await;
    let command = NewCommand {
        id: CommandId(Uuid::from_u128(1)),
        submitter: commanded.clone(),
        tx_id: None,
        verb: Verb::Pause,
        args: serde_json::json!({}),
        actor: NodeText::new("operator"),
    };
    w.store.insert_commands(&[command]).await.unwrap();
    let dead = owner("dead", 9).unwrap();
    held(acquire(w, &dead, &orphaned).await);
    w.advance(Duration::from_secs(11)).await;
    w.accepted(&held_by_a, 1).await;
    held(acquire(w, &owner("a", 1).unwrap(), &held_by_a).await);

    let found = w.store.claimable(&w.terms(), None, 10).await.unwrap();
    assert_eq!(found, [queued.clone(), commanded, orphaned]);
    assert!(!found.contains(&idle));
    assert_eq!(w.store.claimable(&w.terms(), None, 1).await.unwrap(), found[..1]);
    assert_eq!(w.store.claimable(&w.terms(), Some(&queued), 10).await.unwrap(), found[1..]);
    assert_eq!(w.store.claimable(&w.terms(), Some(&found[1]), 10).await.unwrap(), found[2..]);
}
