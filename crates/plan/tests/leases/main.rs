//! Leases over generated histories: two operators that are both active, each with watches that lag
//! behind in their own way, crash after any write, and hand over to each other; joiners that come,
//! grow, shrink, are suspended and deleted; a lender that grows and shrinks; pods that terminate
//! slowly, and agents that ask at any time, for the rank in their boot plan, which may be outdated;
//! invitations that are made, revoked and expire, and brokers elsewhere that use them.
//! No rank ever has brokers of two holders, and once everything is quiet no rank is lost.
//!
//! This is harsher than reality, where one operator leads at a time. Except for the size of the
//! lender's Job: a stale operator never changes it here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod histories;
mod world;

use proptest::prelude::*;
use world::{Kind, World, name};

/// How many histories to try: as many as run in a few seconds without optimization, or `HISTORIES`.
#[expect(clippy::disallowed_methods, reason = "the number of histories is not part of a decision")]
fn cases() -> u32 {
    let histories = std::env::var("HISTORIES").ok();
    histories.and_then(|count| count.parse().ok()).unwrap_or(44)
}

/// The number of joiners.
const JOINERS: usize = 3;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The lead reports to an operator whose watches are current, which reconciles everything.
    Round(usize),
    /// The same, and every agent asks it.
    AskAll(usize),
    /// The watch of one kind of one operator shows the current state.
    CatchUp(usize, Kind),
    /// An operator reconciles the lender; it crashes after this many steps, if they are fewer.
    Lender(usize, usize),
    /// The same for a joiner.
    Joiner(usize, usize, usize),
    /// The agent of a pod asks an operator whether its broker may start.
    Ask(usize, usize),
    /// The kubelet writes the current boot plan of a pod, and its agent reads it before it asks.
    Updated(usize),
    /// The broker of a pod has joined the instance.
    Online(usize),
    /// The same for a pod of the lender.
    LenderOnline(usize),
    /// The Job controller and the garbage collector act.
    Control,
    /// The kubelet has stopped a pod that terminates.
    Stopped(usize),
    /// The same for a pod of the lender.
    LenderStopped(usize),
    /// A pod is killed, and its broker with it.
    Killed(usize),
    /// A user resizes a joiner.
    Resize(usize, i32),
    Suspend(usize, bool),
    Delete(usize),
    /// A joiner is created, with another uid than before.
    Create(usize),
    ResizeLender(i32),
    /// The lead reports to an operator; jobs run on drained ranks or not.
    Report(usize, bool),
    /// The lender's status is lost.
    LoseStatus,
    /// A user invites brokers for this many ranks and seconds.
    Invite(usize, i32, i64),
    Revoke(usize),
    /// A cluster elsewhere creates pods with the file of an invitation.
    Accept(usize, usize),
    /// The agent of one of them asks an operator, through the gateway.
    RemotePodAsks(usize, usize),
    /// The broker of one of them connects, or connects again without asking.
    RemotePodConnects(usize),
    RemotePodStops(usize),
    Time(i64),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    proptest::collection::vec(happening(), 20..160)
}

fn happening() -> impl Strategy<Value = Happening> {
    let (operator, joiner, pod) = (0..2_usize, 0..JOINERS, 0..12_usize);
    let kind = proptest::sample::select(Kind::ALL.to_vec());
    let steps = prop_oneof![4 => Just(99_usize), 1 => 0..5_usize];
    let seconds = prop_oneof![3 => 1..20_i64, 1 => 20..400_i64];
    prop_oneof![
        8 => operator.clone().prop_map(Happening::Round),
        4 => operator.clone().prop_map(Happening::AskAll),
        6 => (operator.clone(), kind).prop_map(|(it, kind)| Happening::CatchUp(it, kind)),
        6 => (operator.clone(), steps.clone()).prop_map(|(it, steps)| Happening::Lender(it, steps)),
        8 => (operator.clone(), joiner.clone(), steps)
            .prop_map(|(it, joiner, steps)| Happening::Joiner(it, joiner, steps)),
        6 => (operator.clone(), pod.clone()).prop_map(|(it, pod)| Happening::Ask(it, pod)),
        2 => pod.clone().prop_map(Happening::Updated),
        4 => pod.clone().prop_map(Happening::Online),
        1 => pod.clone().prop_map(Happening::LenderOnline),
        8 => Just(Happening::Control),
        4 => pod.clone().prop_map(Happening::Stopped),
        2 => pod.clone().prop_map(Happening::LenderStopped),
        1 => pod.prop_map(Happening::Killed),
        2 => (joiner.clone(), 1..4_i32).prop_map(|(it, size)| Happening::Resize(it, size)),
        3 => (joiner.clone(), any::<bool>()).prop_map(|(it, on)| Happening::Suspend(it, on)),
        2 => joiner.clone().prop_map(Happening::Delete),
        2 => joiner.prop_map(Happening::Create),
        2 => (1..5_i32).prop_map(Happening::ResizeLender),
        4 => (operator, any::<bool>()).prop_map(|(it, busy)| Happening::Report(it, busy)),
        1 => Just(Happening::LoseStatus),
        2 => seconds.prop_map(Happening::Time),
    ]
}

/// Histories in which invitations are as frequent as all else.
fn happenings_with_remote_joiners() -> impl Strategy<Value = Vec<Happening>> {
    let (operator, invitation, pod) = (0..2_usize, 0..2_usize, 0..4_usize);
    let seconds = prop_oneof![1 => 5..100_i64, 1 => Just(10_000_i64)];
    let of_remote_joiners = prop_oneof![
        3 => (invitation.clone(), 1..3_i32, seconds)
            .prop_map(|(it, ranks, seconds)| Happening::Invite(it, ranks, seconds)),
        2 => invitation.clone().prop_map(Happening::Revoke),
        4 => (invitation, 0..2_usize).prop_map(|(it, cluster)| Happening::Accept(it, cluster)),
        4 => (operator.clone(), pod.clone())
            .prop_map(|(it, pod)| Happening::RemotePodAsks(it, pod)),
        4 => pod.clone().prop_map(Happening::RemotePodConnects),
        1 => pod.prop_map(Happening::RemotePodStops),
        4 => operator.prop_map(Happening::Round),
        1 => Just(Happening::LoseStatus),
        1 => (60..90_i64).prop_map(Happening::Time),
    ];
    proptest::collection::vec(prop_oneof![of_remote_joiners, happening()], 20..120)
}

fn apply(world: &mut World, happening: Happening) {
    match happening {
        Happening::Round(operator) => world.round(operator),
        Happening::AskAll(operator) => world.ask_all(operator),
        Happening::CatchUp(operator, kind) => world.catch_up(operator, kind),
        Happening::Lender(operator, steps) => world.reconcile_lender(operator, steps),
        Happening::Joiner(operator, joiner, steps) => {
            world.reconcile_joiner(operator, &name(joiner), steps);
        }
        Happening::Ask(operator, pod) => world.ask(operator, pod),
        Happening::Updated(pod) => world.update_boot_plan(pod),
        Happening::Online(pod) => world.go_online(pod),
        Happening::LenderOnline(pod) => world.go_online_of_lender(pod),
        Happening::Control => world.control(),
        Happening::Stopped(pod) => world.stop_terminating(pod),
        Happening::LenderStopped(pod) => world.stop_terminating_of_lender(pod),
        Happening::Killed(pod) => world.kill(pod),
        Happening::Resize(joiner, size) => world.change(joiner, "size", size.into()),
        Happening::Suspend(joiner, on) => world.change(joiner, "suspend", on.into()),
        Happening::Delete(joiner) => world.delete(joiner),
        Happening::Create(joiner) => world.create(joiner),
        Happening::ResizeLender(size) => world.resize_lender(size),
        Happening::Report(operator, busy) => world.report(operator, busy),
        Happening::LoseStatus => world.lose_status(),
        Happening::Invite(invitation, ranks, seconds) => world.invite(invitation, ranks, seconds),
        Happening::Revoke(invitation) => world.revoke(invitation),
        Happening::Accept(invitation, cluster) => world.accept(invitation, cluster),
        Happening::RemotePodAsks(operator, pod) => world.remote_pod_asks(operator, pod),
        Happening::RemotePodConnects(pod) => world.remote_pod_connects(pod),
        Happening::RemotePodStops(pod) => world.remote_pod_stops(pod),
        Happening::Time(seconds) => world.pass_time(seconds),
    }
}

fn run(mut world: World, is_joined: bool, happenings: Vec<Happening>) {
    if is_joined {
        world.settle();
    }
    for happening in happenings {
        apply(&mut world, happening);
        world.assert_one_holder_for_each_rank(&happening);
    }
    world.settle();
    world.assert_nothing_is_lost();
    if world.revoke_all() {
        world.settle();
        world.assert_nothing_is_lost();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn b12_no_rank_has_two_holders_and_none_is_lost(
        is_joined in any::<bool>(),
        happenings in happenings(),
    ) {
        run(World::new(JOINERS), is_joined, happenings);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases().div_ceil(5))
    })]

    #[test]
    fn b12_no_rank_has_two_holders_with_invitations_and_none_is_lost(
        is_joined in any::<bool>(),
        happenings in happenings_with_remote_joiners(),
    ) {
        run(World::exposed(1), is_joined, happenings);
    }
}

#[test]
fn two_joiners_for_the_last_ranks_one_gets_them() {
    let mut world = World::new(2);
    for joiner in 0..2 {
        world.change(joiner, "size", 3.into());
    }
    world.settle();
    // Two spare ranks, and two hosts of the lender's own that it does not use.
    assert_eq!(world.brokers().len(), 3);
    world.assert_nothing_is_lost();
}

#[test]
fn brokers_elsewhere_join_and_leave_when_their_invitation_is_revoked() {
    let mut world = World::exposed(0);
    world.invite(0, 2, 100);
    world.settle();
    world.accept(0, 0);
    world.settle();
    assert_eq!(world.count_remote_pods_online(), 2);
    world.revoke(0);
    assert_eq!(world.count_remote_pods_online(), 0, "the gateway closes their connections");
    world.settle();
    world.assert_nothing_is_lost();
}

#[test]
fn a_pod_with_the_rank_of_another_holder_is_replaced() {
    let catch_up = |operator| Happening::CatchUp(operator, Kind::MiniClusters);
    let mut world = World::new(2);
    let history = [
        Happening::Suspend(1, true),
        Happening::Report(0, false),
        // Rank 4 for joiner-0. The other operator observes that, and no later change.
        Happening::Lender(0, 99),
        catch_up(0),
        Happening::Joiner(0, 0, 99),
        catch_up(1),
        Happening::Suspend(0, true),
        catch_up(0),
        Happening::Lender(0, 99),
        Happening::Suspend(1, false),
        catch_up(0),
        // Rank 4 for joiner-1, and then rank 5 for joiner-0.
        Happening::Lender(0, 99),
        Happening::Suspend(0, false),
        catch_up(0),
        Happening::Lender(0, 99),
        // A Job for rank 4.
        Happening::Joiner(1, 0, 99),
        Happening::Control,
    ];
    history.into_iter().for_each(|happening| apply(&mut world, happening));
    assert_eq!(world.count_joiner_pods(), 1);
    apply(&mut world, Happening::AskAll(0));
    assert_eq!(world.count_joiner_pods(), 0);
    world.settle();
    assert_eq!(world.brokers().len(), 2);
    world.assert_nothing_is_lost();
}
