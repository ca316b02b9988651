//! The rules for the stuck as tables, and their end as a property.

use alloy_primitives::{Address, B256, Bytes};
use proptest::prelude::*;

use super::StuckAction as A;
use super::*;
use crate::attempt::{AttemptKind, NewAttempt, Route, StoredAttempt};
use crate::fees::{Fees, GasPrice};
use crate::ids::{Nonce, Order, RequestId, Scope, TxId};
use crate::intent::{Intent, Options, Payload};
use crate::record::{Amendment, Mined, MinedAs, NewTx, TxFacts, TxRecord, Withdrawal};
use crate::submitter::SubmitterId;

const BOUND: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn step(after: u64, action: A, max: u32) -> Step {
    Step { after: s(after), action, max, when: None }
}

fn when(step: Step, findings: &[Finding]) -> Step {
    Step { when: Some(findings.iter().copied().collect()), ..step }
}

fn rules(steps: Vec<Step>) -> StuckRules {
    StuckRules { steps, ..StuckRules::default() }
}

fn bound() -> TxRecord {
    let submitter = SubmitterId::evm(1, Address::repeat_byte(1));
    let payload = Payload { to: Some(Address::repeat_byte(2)), ..Payload::default() };
    let intent = Intent { payload, options: Options::default() };
    let request = NewTx::new(
        TxId(uuid::Uuid::from_u128(1)),
        Scope::from(&submitter),
        submitter,
        RequestId::parse("a").unwrap(),
        intent,
        None,
    );
    let facts = TxFacts {
        state: TxState::Tracking,
        nonce: Some(Nonce(0)),
        tx_hash: Some(B256::repeat_byte(3)),
        bound_at: Some(BOUND),
        ..TxFacts::accepted()
    };
    TxRecord {
        request: request.unwrap(),
        order: Order(1),
        created_at: BOUND,
        facts,
        updated_at: BOUND,
        fencing_token: None,
    }
}

fn attempt(tx: &TxRecord, n: u32, kind: AttemptKind, resends: u32) -> StoredAttempt {
    let attempt = NewAttempt {
        nonce: Nonce(0),
        n,
        tx_id: Some(tx.tx_id()),
        kind,
        route: Route::Public,
        hash: B256::repeat_byte(3),
        raw: Bytes::new(),
        fees: Fees::Legacy { gas_price: GasPrice(1) },
        next_send_at: BOUND,
    };
    StoredAttempt::read_from_store(attempt, BOUND, resends, None)
}

/// A transaction in a test's hands: it takes each decision as a lane does.
#[derive(Debug)]
struct Patient {
    tx: TxRecord,
    attempts: Vec<StoredAttempt>,
    diagnosis: Diagnosis,
}

impl Patient {
    fn new() -> Self {
        let tx = bound();
        let attempts = vec![attempt(&tx, 0, AttemptKind::Payload, 0)];
        Self { tx, attempts, diagnosis: Diagnosis::Unknown }
    }

    fn at(&self, now: Timestamp) -> StuckContext<'_> {
        StuckContext { tx: &self.tx, attempts: &self.attempts, diagnosis: &self.diagnosis, now }
    }

    fn decide(&self, rules: &StuckRules, now: Timestamp) -> Decision {
        rules.decide(&self.at(now))
    }

    fn obey(&mut self, decision: Decision, now: Timestamp) {
        let facts = &mut self.tx.facts;
        if let Some(step) = decision.step {
            let amended = facts.amend();
            if amended.steps.len() <= step {
                amended.steps.resize(step + 1, 0);
            }
            amended.steps[step] += 1;
            amended.stepped_at = Some(now);
        }
        match decision.action {
            A::Escalate => facts.state = facts.state.next(crate::state::TxEvent::Stick).unwrap(),
            A::Placeholder => facts.amend().withdrawal = Some(Withdrawal::Governor),
            _ => {}
        }
    }

    /// What is done at each of these ages, in seconds.
    fn through(&mut self, rules: &StuckRules, ages: &[u64]) -> Vec<(u64, &'static str, Option<usize>)> {
        let mut done = Vec::new();
        for age in ages {
            let now = BOUND.plus(s(*age));
            let decision = self.decide(rules, now);
            self.obey(decision, now);
            if decision.action != A::KeepTrying {
                done.push((*age, decision.action.name(), decision.step));
            }
        }
        done
    }
}

#[test]
fn the_default_tells_a_human_after_an_hour_and_never_cancels() {
    let ages = [0, 59, 60, 61, 600, 3_599, 3_600, 3_601, 86_400, 864_000];
    let done = Patient::new().through(&StuckRules::default(), &ages);
    assert_eq!(done, [(3_600, "escalate", None)]);
}

#[test]
fn what_was_sent_often_enough_is_escalated_too() {
    let mut patient = Patient::new();
    patient.attempts[0] = attempt(&patient.tx, 0, AttemptKind::Payload, 18);
    assert!(patient.through(&StuckRules::default(), &[120]).is_empty(), "19 times");
    // A placeholder is not the transaction's own, nor is somebody else's attempt in the slot.
    patient.attempts.push(attempt(&patient.tx, 1, AttemptKind::Placeholder, 9));
    assert!(patient.through(&StuckRules::default(), &[120]).is_empty());
    patient.attempts.push(attempt(&patient.tx, 2, AttemptKind::Replacement, 0));
    assert!(patient.through(&StuckRules::default(), &[59]).is_empty(), "nobody's concern yet");
    assert_eq!(patient.through(&StuckRules::default(), &[60, 61]), [(60, "escalate", None)]);
}

#[test]
fn steps_are_taken_in_order_with_a_pause_between_and_within_their_budgets() {
    let rules = rules(vec![
        step(0, A::Rebroadcast, 1),
        step(300, A::Bump, 2),
        step(900, A::Placeholder, 1),
        step(7_200, A::Protect, 1),
    ]);
    rules.check().unwrap();
    let ages = [59, 60, 61, 119, 120, 299, 300, 359, 360, 400, 420, 899, 900, 960, 3_600, 7_200, 9_000];
    let done = Patient::new().through(&rules, &ages);
    assert_eq!(
        done,
        [
            (60, "rebroadcast", Some(0)),
            (300, "bump", Some(1)),
            (360, "bump", Some(1)),
            (900, "placeholder", Some(2)),
            (3_600, "escalate", None),
            (7_200, "protect", Some(3)),
        ]
    );
}

#[test]
fn a_condition_must_hold_when_the_step_is_due() {
    let rules = rules(vec![
        when(step(60, A::Bump, 5), &[Finding::Underpriced]),
        when(step(60, A::Rebroadcast, 5), &[Finding::Lost, Finding::GapBelow]),
    ]);
    rules.check().unwrap();
    for (diagnosis, expected) in [
        (Diagnosis::Underpriced, Some(0)),
        (Diagnosis::Lost, Some(1)),
        (Diagnosis::GapBelow { nonce: Nonce(4) }, Some(1)),
        (Diagnosis::InPool, None),
        (Diagnosis::ReplacedBy { hash: B256::ZERO }, None),
        (Diagnosis::Unknown, None),
    ] {
        let patient = Patient { diagnosis: diagnosis.clone(), ..Patient::new() };
        assert_eq!(patient.decide(&rules, BOUND.plus(s(60))).step, expected, "{diagnosis:?}");
    }
}

#[test]
fn what_is_mined_unbound_or_ended_is_left_alone() {
    let rules = rules(vec![step(60, A::Placeholder, 1)]);
    let later = BOUND.plus(s(1_000_000));
    let mut patient = Patient::new();
    assert_eq!(patient.decide(&rules, later).action, A::Placeholder);
    patient.tx.facts.mined = Some(Mined {
        hash: B256::ZERO,
        mined_as: MinedAs::Payload,
        block_number: 1,
        block_hash: B256::ZERO,
        succeeded: true,
        gas_used: crate::fees::Gas(1),
        effective_gas_price: GasPrice(1),
        contract_address: None,
        at: BOUND,
    });
    assert_eq!(patient.decide(&rules, later).action, A::KeepTrying);
    patient.tx.facts.mined = None;
    for state in TxState::ALL {
        patient.tx.facts.state = *state;
        let looked_at = matches!(state, TxState::Tracking | TxState::Stuck);
        assert_eq!(patient.decide(&rules, later).action != A::KeepTrying, looked_at, "{state}");
        assert_eq!(rules.next_act(&patient.at(later)).is_some(), looked_at, "{state}");
    }
}

#[test]
fn a_placeholder_that_competes_already_is_not_doubled() {
    let rules = rules(vec![step(60, A::Placeholder, 1)]);
    let mut patient = Patient::new();
    patient.tx.facts.amend().withdrawal = Some(Withdrawal::Cancel);
    assert_eq!(patient.decide(&rules, BOUND.plus(s(100))).action, A::KeepTrying);
}

#[test]
fn rules_that_come_to_no_end_or_cannot_be_meant_are_refused() {
    let endless = "policy-cannot-terminate";
    let invalid = "policy-invalid";
    let with = |steps: Vec<Step>| rules(steps);
    let table: Vec<(StuckRules, &str, &str)> = vec![
        (StuckRules { stall_after: s(0), ..rules(vec![]) }, endless, "stall_after"),
        (StuckRules { max_attempts: 0, ..rules(vec![]) }, invalid, "max_attempts"),
        (StuckRules { max_age: s(59), ..rules(vec![]) }, invalid, "max_age"),
        (with(vec![step(1, A::Bump, Step::UNBOUNDED)]), endless, "steps[0] (bump) has no max"),
        (with(vec![step(1, A::Rebroadcast, Step::default_max(A::Rebroadcast))]), endless, "no max"),
        (with(vec![step(1, A::Rebroadcast, 600), step(1, A::Bump, 401)]), endless, "1001 times"),
        (with(vec![step(1, A::Bump, 0)]), invalid, "max = 0"),
        (with(vec![step(1, A::KeepTrying, 1)]), invalid, "keepTrying"),
        (with(vec![step(1, A::Placeholder, 2)]), invalid, "placeholder happens once"),
        (with(vec![step(1, A::Placeholder, 1), step(9, A::Placeholder, 1)]), invalid, "steps[1]"),
        (with(vec![step(1, A::Protect, Step::UNBOUNDED)]), invalid, "protect happens once"),
        (with(vec![step(1, A::Escalate, 1), step(2, A::Escalate, 1)]), invalid, "escalate happens once"),
        (with(vec![step(9, A::Bump, 1), step(8, A::Bump, 1)]), invalid, "steps[1].after"),
        (with(vec![step(1, A::Protect, 1), step(2, A::Bump, 1)]), invalid, "after protect"),
        (with(vec![step(1, A::Protect, 1), step(2, A::Escalate, 1)]), invalid, "after protect"),
        (with(vec![step(1, A::Escalate, 1), step(2, A::Placeholder, 1)]), invalid, "after escalate"),
        (with(vec![step(1, A::Escalate, 1), step(2, A::Rebroadcast, 1)]), invalid, "after escalate"),
        (with(vec![when(step(1, A::Bump, 1), &[])]), invalid, "when is empty"),
        (with(vec![step(1, A::Bump, 1); 17]), invalid, "17 steps"),
    ];
    for (rules, code, says) in table {
        let error = rules.check().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    StuckRules::default().check().unwrap();
    with(vec![step(1, A::Escalate, 1), step(2, A::Protect, 1)]).check().unwrap();
    with(vec![step(1, A::Bump, 1); 16]).check().unwrap();
}

fn finding() -> impl Strategy<Value = Finding> {
    proptest::sample::select(Finding::ALL)
}

fn any_step() -> impl Strategy<Value = Step> {
    let conditions = proptest::option::weighted(0.3, proptest::collection::btree_set(finding(), 1..4));
    let max = prop_oneof![8 => 0_u32..8, 1 => Just(Step::UNBOUNDED), 1 => 0_u32..600];
    (0_u64..10_000, proptest::sample::select(A::ALL), max, conditions)
        .prop_map(|(after, action, max, when)| Step { after: s(after), action, max, when })
}

/// Any rules that pass the check: of any steps in any order, those that do no harm to what stands before them.
fn any_rules() -> impl Strategy<Value = StuckRules> {
    let steps = proptest::collection::vec(any_step(), 0..12);
    (steps, 1_u64..1_000, 1_u32..40, 0_u64..10_000).prop_map(|(steps, stall, max_attempts, more)| {
        let mut rules =
            StuckRules { stall_after: s(stall), max_attempts, max_age: s(stall + more), steps: Vec::new() };
        for step in steps {
            rules.steps.push(step);
            if rules.check().is_err() {
                rules.steps.pop();
            }
        }
        rules
    })
}

fn diagnosis() -> impl Strategy<Value = Diagnosis> {
    prop_oneof![
        Just(Diagnosis::InPool),
        Just(Diagnosis::Lost),
        Just(Diagnosis::Underpriced),
        Just(Diagnosis::Unknown),
        Just(Diagnosis::GapBelow { nonce: Nonce(0) }),
    ]
}

/// Any facts a lane could have left behind.
fn any_patient() -> impl Strategy<Value = Patient> {
    let amended = proptest::option::of((
        proptest::collection::vec(0_u32..9, 0..7),
        proptest::option::of(0_u64..20_000),
        proptest::option::of(proptest::sample::select(Withdrawal::ALL)),
    ));
    let state = proptest::sample::select(&[TxState::Tracking, TxState::Stuck][..]);
    (amended, state, proptest::collection::vec(0_u32..30, 1..4), diagnosis()).prop_map(
        |(amended, state, resends, diagnosis)| {
            let mut tx = bound();
            tx.facts.state = state;
            tx.facts.amended = amended.map(|(steps, stepped, withdrawal)| {
                let stepped_at = stepped.map(|age| BOUND.plus(s(age)));
                Box::new(Amendment { steps, stepped_at, withdrawal, ..Amendment::default() })
            });
            let resent = resends.into_iter().zip(0..);
            let attempts =
                resent.map(|(resends, n)| attempt(&tx, n, AttemptKind::Payload, resends)).collect();
            Patient { tx, attempts, diagnosis }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn checked_rules_come_to_an_end_within_their_budgets(
        rules in any_rules(),
        mut patient in any_patient(),
        pauses in proptest::collection::vec(0_u64..5_000, 1..20),
        seen in proptest::collection::vec(diagnosis(), 1..20),
    ) {
        prop_assert_eq!(rules.check(), Ok(()));
        let (mut now, mut done) = (BOUND, 0_u64);
        // Until nothing is left to do, however time passes and whatever the pool looks like meanwhile.
        for round in 0..2_000 {
            let decision = patient.decide(&rules, now);
            prop_assert!(decision.step.is_none_or(|at| rules.steps[at].action == decision.action));
            done += u64::from(decision.action != A::KeepTrying);
            prop_assert!(done <= rules.budget() + 1, "{done} decisions out of {}", rules.budget());
            patient.obey(decision, now);
            patient.diagnosis = seen[round % seen.len()].clone();
            now = now.plus(s(pauses[round % pauses.len()]));
        }
        // And once the end is reached under what the pool shows now, it stays reached.
        while let Some(next) = rules.next_act(&patient.at(now)) {
            now = now.max(next);
            let decision = patient.decide(&rules, now);
            done += 1;
            prop_assert!(done <= rules.budget() + 1);
            patient.obey(decision, now);
        }
        for far in [0, 1, 60, 3_600, 86_400 * 3_650] {
            prop_assert_eq!(patient.decide(&rules, now.plus(s(far))), A::KeepTrying.into());
        }
    }

    #[test]
    fn the_next_act_is_foretold_to_the_microsecond(rules in any_rules(), patient in any_patient()) {
        prop_assert_eq!(rules.check(), Ok(()));
        match rules.next_act(&patient.at(BOUND)) {
            Some(next) => {
                let before = next.minus(Duration::from_micros(1));
                prop_assert_eq!(patient.decide(&rules, before).action, A::KeepTrying);
                prop_assert_ne!(patient.decide(&rules, next).action, A::KeepTrying);
            }
            None => {
                let far = BOUND.plus(s(86_400 * 3_650));
                prop_assert_eq!(patient.decide(&rules, far).action, A::KeepTrying);
            }
        }
    }
}
