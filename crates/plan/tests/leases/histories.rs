//! Histories that generated ones have led to, minimised: in each, two holders once had one rank, or a
//! joiner could not leave. One operator is active in each of them.

use super::Happening::{
    Accept, Ask, AskAll, CatchUp, Control, Invite, Joiner, Lender, LoseStatus, RemotePodAsks,
    RemotePodConnects, Report, Resize, ResizeLender, Round, Suspend, Time,
};
use super::world::Kind::{Jobs, MiniClusters, Pods};
use super::world::World;
use super::{Happening, apply};

/// All steps.
const ALL: usize = 99;

fn run(joiners: usize, history: &[Happening]) -> World {
    continued(World::new(joiners), history)
}

fn continued(mut world: World, history: &[Happening]) -> World {
    for happening in history {
        apply(&mut world, *happening);
        world.assert_one_holder_for_each_rank(happening);
    }
    world
}

/// The watch shows a smaller Job of the lender than the API server has: its pods do not exist yet.
#[test]
fn a_rank_is_not_lent_if_the_job_of_the_lender_will_start_its_broker() {
    run(
        1,
        &[
            Resize(0, 4),
            Report(0, false),
            ResizeLender(3),
            CatchUp(0, MiniClusters),
            // The Job has size 3 from here on, and the watch of Jobs shows 2.
            Lender(0, ALL),
            ResizeLender(2),
            CatchUp(0, MiniClusters),
            // Lends ranks 4, 5, 3 and 2.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            // Creates the lender's pod with index 2.
            Control,
            CatchUp(0, Pods),
            Ask(0, 3),
        ],
    );
}

/// A second operator is still active, and its watch of Jobs shows a Job of a joiner that is deleted by now.
/// Its note is no sign of a lost status: the lender's own Job has the rank.
#[test]
fn a_lease_is_not_recorded_again_from_a_job_that_is_deleted() {
    run(
        3,
        &[
            Round(0),
            Round(0),
            ResizeLender(4),
            Suspend(2, true),
            Round(1),
            Round(0),
            Suspend(2, false),
            Lender(0, ALL),
            Round(0),
            CatchUp(1, MiniClusters),
            Control,
            Lender(1, ALL),
            Round(1),
            Control,
            Round(1),
            Ask(1, 2),
        ],
    );
}

/// A joiner gives back a rank before its Job has created a pod. The rank must not be granted to another
/// one as long as the Job notes it: after a loss of the status, two Jobs would note it.
#[test]
fn a_rank_that_two_jobs_note_is_not_given_to_its_former_holder() {
    run(
        2,
        &[
            Suspend(1, true),
            Report(0, false),
            // Rank 4 for joiner-0, whose Job is created. It has no pod yet.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            Suspend(0, true),
            CatchUp(0, MiniClusters),
            CatchUp(0, Jobs),
            Lender(0, ALL),
            Suspend(1, false),
            CatchUp(0, MiniClusters),
            // Removes that lease, and grants rank 4 to joiner-1, whose broker starts.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 1, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 1, ALL),
            Control,
            CatchUp(0, Pods),
            Ask(0, 1),
            Suspend(0, false),
            LoseStatus,
            CatchUp(0, MiniClusters),
            CatchUp(0, Jobs),
            // Records rank 4 for joiner-0 again.
            Lender(0, ALL),
            Ask(0, 0),
        ],
    );
}

/// The operator crashes while it writes new ranks of a joiner to the note on its Job and to its boot
/// plan, and then the status is lost.
#[test]
fn a_rank_that_is_not_noted_yet_is_not_granted_again() {
    run(
        2,
        &[
            Suspend(1, true),
            Report(0, false),
            // Rank 4 for joiner-0, whose Job is created. It has no pod yet.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            Suspend(0, true),
            CatchUp(0, MiniClusters),
            CatchUp(0, Jobs),
            Lender(0, ALL),
            Suspend(1, false),
            CatchUp(0, MiniClusters),
            // Rank 4 for joiner-1, and then rank 5 for joiner-0.
            Lender(0, ALL),
            Suspend(0, false),
            CatchUp(0, MiniClusters),
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            // Crashes after the boot plan is written.
            Joiner(0, 0, 2),
            Control,
            CatchUp(0, Pods),
            Ask(0, 0),
            LoseStatus,
            CatchUp(0, MiniClusters),
            // Rank 4 for joiner-0, from the note, and rank 5 for joiner-1.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 1, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 1, ALL),
            Control,
            CatchUp(0, Pods),
            Ask(0, 1),
        ],
    );
}

/// Kubernetes refuses to create the pods of a joiner, for example because of a quota. Its lease must not
/// be removed as long as its Job notes it: it would be recorded again.
#[test]
fn a_suspended_joiner_without_pods_leaves() {
    let history = [
        Report(0, false),
        Lender(0, ALL),
        CatchUp(0, MiniClusters),
        Joiner(0, 0, ALL),
        CatchUp(0, MiniClusters),
        Joiner(0, 0, ALL),
        Suspend(0, true),
    ];
    let round = [
        CatchUp(0, MiniClusters),
        CatchUp(0, Jobs),
        Report(0, false),
        Lender(0, ALL),
        CatchUp(0, MiniClusters),
        Joiner(0, 0, ALL),
        Time(5),
    ];
    let world = run(1, &[history.to_vec(), round.repeat(100)].concat());
    assert!(!world.has_job(0));
}

/// A reconciliation of a joiner is so slow that its rank has another holder when it creates the Job.
/// Operator 1 stands for it: reconciliations are not divided here.
#[test]
fn a_job_that_was_created_late_does_not_get_the_rank_of_another_holder() {
    run(
        2,
        &[
            Suspend(1, true),
            Report(0, false),
            // Rank 4 for joiner-0, which the slow reconciliation observes.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 0, ALL),
            CatchUp(1, MiniClusters),
            Suspend(0, true),
            CatchUp(0, MiniClusters),
            Lender(0, ALL),
            Suspend(1, false),
            CatchUp(0, MiniClusters),
            Time(1),
            Report(0, false),
            // Rank 4 for joiner-1.
            Lender(0, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 1, ALL),
            CatchUp(0, MiniClusters),
            Joiner(0, 1, ALL),
            // It creates the Job of joiner-0, which notes rank 4.
            Joiner(1, 0, ALL),
            Suspend(0, false),
            Control,
            CatchUp(0, Pods),
            Ask(0, 1),
            LoseStatus,
            CatchUp(0, MiniClusters),
            CatchUp(0, Jobs),
            Lender(0, ALL),
            Ask(0, 0),
        ],
    );
}

/// A broker elsewhere connects again without asking. If its invitation had other ranks after a loss of
/// the status, it would come back to a rank that a joiner has by then.
#[test]
fn a_broker_elsewhere_that_connects_again_after_a_loss_of_the_status_has_its_rank() {
    let world = continued(
        World::exposed(1),
        &[
            Suspend(0, true),
            Invite(0, 2, 1000),
            Round(0),
            Accept(0, 0),
            // The lender notes the cluster that asks, and only then may its brokers start.
            RemotePodAsks(0, 0),
            Round(0),
            RemotePodAsks(0, 0),
            RemotePodAsks(0, 0),
            RemotePodConnects(0),
            RemotePodConnects(1),
            Report(0, false),
            LoseStatus,
            CatchUp(0, MiniClusters),
            // The last report shows both ranks online.
            Lender(0, ALL),
            Suspend(0, false),
            Time(1),
            Round(0),
            Round(0),
            Control,
            AskAll(0),
            RemotePodConnects(0),
            RemotePodConnects(1),
        ],
    );
    assert_eq!(world.count_remote_pods_online(), 2);
    assert_eq!(world.brokers().len(), 3, "and the joiner has a rank of its own");
}
