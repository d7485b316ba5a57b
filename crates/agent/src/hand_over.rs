//! Jobs that are handed over to an instance of their own elsewhere: holds them, reads their
//! jobspecs, cancels them with a message or gives them back, as the operator orders.
//!
//! An order is a desired state. It is executed when it is new, and answered again every few seconds
//! while the operator still sends it: an answer may be lost.
//!
//! Who has held a job is recorded in the job itself: a memo is written just before it is held. So
//! another agent, such as one whose instance was restored from an archive, can release it.

mod job;

use std::thread;
use std::time::{Duration, Instant};

use flux_operator_flux::{JobEvent, JobId, update_jobspec};
use flux_operator_wire::{
    HomeJobState, JobGoal, JobOrder, JobRefusal, JobspecText, MAX_JOBSPEC, OrderAnswer,
};

use self::job::{HOLD_MEMO, Job, is_waiting};
use crate::flux_command::{CommandError, FluxCommand};

/// How soon an order that is still sent is answered again, and one that has failed is tried again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(2);

/// How long after a job was held it is looked at again: the scheduler may have given it resources
/// at that moment.
const SETTLING_TIME: Duration = Duration::from_millis(500);

/// How many orders are known at the same time. The operator has fewer.
const MAX_ORDERS: usize = 64;

/// Jobs that are handed over.
pub struct HandOver {
    command: FluxCommand,
    /// The number of the user as whom the instance runs.
    owner: u32,
    /// The orders, and when each was answered last.
    orders: Vec<(JobOrder, Option<Instant>)>,
}

impl HandOver {
    /// Creates it without orders, for an instance that runs as this user.
    pub fn new(command: FluxCommand, owner: u32) -> HandOver {
        HandOver { command, owner, orders: Vec::new() }
    }

    /// Sets the orders. Those that were known stay as they are.
    pub fn set(&mut self, orders: &[JobOrder]) {
        let known = std::mem::take(&mut self.orders);
        let answered = |order: &JobOrder| known.iter().find(|(it, _)| it == order)?.1;
        self.orders = orders.iter().take(MAX_ORDERS).map(|it| (it.clone(), answered(it))).collect();
    }

    /// Whether there are orders, so that the instance is asked often.
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Executes the orders that are due, and returns their answers, in parts. If Flux does not answer in
    /// time, the others are executed next time: reports wait for this.
    pub fn answers(&mut self) -> Vec<OrderAnswer> {
        // All jobs are held before the first of them is looked at again.
        let mut jobs = Vec::new();
        for index in self.due_orders() {
            let (order, answered) = &mut self.orders[index];
            *answered = Some(Instant::now());
            let order = order.clone();
            // One without an answer is tried again.
            let held = self.job(order.job).and_then(|job| Ok((self.hold(&order, &job)?, job)));
            match held {
                Ok((is_new, job)) => jobs.push((order, job, is_new)),
                Err(CommandError::NoExit) => break,
                Err(_) => {}
            }
        }
        if jobs.iter().any(|(_, _, is_new)| *is_new) {
            thread::sleep(SETTLING_TIME);
        }
        let mut answers = Vec::new();
        for (order, job, is_new) in jobs {
            match if is_new { self.job(order.job) } else { Ok(job) } {
                Ok(job) => answers.extend(self.execute(&order, job)),
                Err(CommandError::NoExit) => break,
                Err(_) => {}
            }
        }
        answers
    }

    /// The orders that were not answered a moment ago, those first that wait longest.
    fn due_orders(&self) -> Vec<usize> {
        let answered = |index: usize| self.orders[index].1;
        let is_due = |at: Instant| at.elapsed() >= REPEAT_INTERVAL;
        let mut due: Vec<usize> =
            (0..self.orders.len()).filter(|index| answered(*index).is_none_or(is_due)).collect();
        due.sort_by_key(|index| answered(*index));
        due
    }

    /// Holds a job that is to be held, and may start. Returns whether it is such a job. Fails if it
    /// could not be recorded that it is about to be held.
    fn hold(&self, order: &JobOrder, job: &Job) -> Result<bool, CommandError> {
        // Elsewhere there are none of the jobs that it waits for.
        let may_start =
            job.state == HomeJobState::Pending && !job.has_dependencies && !job.is_ended;
        if order.goal != JobGoal::Held || !may_start || self.is_of_other_user(job) {
            return Ok(false);
        }
        let id = word(order.job);
        let (key, value) = HOLD_MEMO;
        // Before, because it may be held although the command fails.
        self.command.try_query(&["job", "memo", &id, &format!("{key}={value}")])?;
        self.command.run(&["job", "urgency", &id, "hold"]);
        Ok(true)
    }

    /// Whether a job waits that would run elsewhere as another user than here.
    fn is_of_other_user(&self, job: &Job) -> bool {
        is_waiting(job.state) && job.user != Some(self.owner)
    }

    /// Executes an order. A job that is to be held and may start has been held before, by `hold`. Without
    /// an answer, the order is tried again.
    fn execute(&self, order: &JobOrder, job: Job) -> Vec<OrderAnswer> {
        let is_of_other_user = self.is_of_other_user(&job);
        let Job { mut state, urgency, before, is_ended, is_held_here, updates, .. } = job;
        let id = word(order.job);
        match &order.goal {
            JobGoal::Canceled(message) if !is_over(state) => {
                // Not twice: its tasks may take a while to stop.
                if !is_ended {
                    // As a word of its own, one that begins with `-` would be an option, and one that
                    // is a job's ID would cancel that job.
                    let note = format!("--message={message}");
                    self.command.run(&[
                        "job",
                        "raise",
                        "--type=cancel",
                        "--severity=0",
                        &note,
                        &id,
                    ]);
                }
                match self.job(order.job) {
                    Ok(now) if is_over(now.state) => state = now.state,
                    _ => return Vec::new(),
                }
            }
            JobGoal::Released(known) => {
                let was_held_here = is_held_here.unwrap_or(known.is_some());
                // With another urgency it was released by its user.
                let is_on_hold = urgency == 0 && is_waiting(state);
                let wanted = before.or(*known).filter(|it| was_held_here && is_on_hold && *it > 0);
                if let Some(wanted) = wanted {
                    self.command.run(&["job", "urgency", &id, &wanted.to_string()]);
                    match self.job(order.job) {
                        Ok(now) if now.urgency > 0 || !is_waiting(now.state) => state = now.state,
                        _ => return Vec::new(),
                    }
                }
            }
            JobGoal::Held | JobGoal::Canceled(_) => {}
        }
        let is_held_here = state == HomeJobState::Held && is_held_here == Some(true);
        let answer = OrderAnswer {
            urgency: before.filter(|_| is_held_here),
            ..OrderAnswer::new(order.clone(), state)
        };
        if order.goal == JobGoal::Held && is_of_other_user {
            return vec![OrderAnswer { refusal: Some(JobRefusal::OtherUser), ..answer }];
        }
        if (&order.goal, state) != (&JobGoal::Held, HomeJobState::Held) {
            return vec![answer];
        }
        // The other one, with its changes, has no environment.
        let jobspec = self.command.query(&["job", "info", "--original", &id, "jobspec"]);
        let Some(mut jobspec) = jobspec.map(JobspecText::new) else { return Vec::new() };
        // One that was not changed is reported to the letter.
        if !updates.is_empty() && jobspec.len() <= MAX_JOBSPEC {
            jobspec = match update_jobspec(jobspec.as_secret_str(), &updates) {
                Ok(text) => JobspecText::new(text),
                Err(_) => {
                    let refusal = Some(JobRefusal::NotUpdatable);
                    return vec![OrderAnswer { refusal, ..answer }];
                }
            };
        }
        // One that is too large is reported as such, by its length.
        let total = u32::try_from(jobspec.len()).unwrap_or(u32::MAX);
        match jobspec.len() > MAX_JOBSPEC {
            true => vec![OrderAnswer { total, offset: total, ..answer }],
            false => answer.split(&jobspec),
        }
    }

    /// What a job is.
    fn job(&self, job: u64) -> Result<Job, CommandError> {
        let id = word(job);
        match self.command.try_query(&["job", "eventlog", "--format=json", &id]) {
            Ok(text) => {
                let events = JobEvent::parse_log(&text).ok_or(CommandError::TooLong)?;
                Ok(Job::by_events(&events))
            }
            // It fails as well if the instance does not answer in time.
            Err(CommandError::Failed(errors)) => {
                let unknown = format!("flux-job: job {id} not found");
                match errors.lines().any(|line| line == unknown) {
                    true => Ok(Job { state: HomeJobState::Missing, ..Job::by_events(&[]) }),
                    false => Err(CommandError::Failed(errors)),
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// A job's ID, as a word of a command.
fn word(job: u64) -> String {
    JobId::from(job).to_f58_plain()
}

fn is_over(state: HomeJobState) -> bool {
    matches!(state, HomeJobState::Finished | HomeJobState::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    // What flux-core 0.88 printed.
    const NEW: &str = r#"{"timestamp":1794721602.22,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}"#;
    const SUBMITTED: &str = concat!(
        r#"{"timestamp":1794721602.22,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}"#,
        "\n",
        r#"{"timestamp":1794721602.23,"name":"depend"}"#
    );
    const HELD: &str =
        r#"{"timestamp":1794721603.1,"name":"urgency","context":{"userid":0,"urgency":0}}"#;
    const MEMO: &str = r#"{"timestamp":1794721603.0,"name":"memo","context":{"flux-operator-hold":"isolated-run"}}"#;
    const CLEAN: &str = r#"{"timestamp":1794721604.1,"name":"clean"}"#;
    const BUSY: &str = "flux-job: flux_job_eventlog_lookup_get: Connection timed out";

    /// A fake `flux`, whose jobs have the events of one file, and those that `urgency` and `raise` add
    /// for each. If the file is empty there are no jobs. They cannot be read while there is a file `busy`,
    /// and get no memo while there is a file `full`.
    fn fake(directory: &Path, events: &str) -> HandOver {
        let flux = directory.join("flux");
        std::fs::write(directory.join("events"), events).unwrap();
        let script = format!(
            "#!/bin/sh\ncd {}\nfor word; do printf '[%s]' \"$word\"; done >>log; echo >>log\n\
             case \"$*\" in\n*eventlog*) test ! -e busy || {{ echo '{BUSY}' >&2; exit 1; }}\n\
             test -s events && touch of-$4 && exec cat events of-$4\n\
             echo \"flux-job: job $4 not found\" >&2; exit 1;;\n\
             *info*) printf '%s' \"$(cat jobspec)\";;\n\
             *memo*) test ! -e full && echo '{MEMO}' >>of-$3;;\n\
             *raise*) echo '{CLEAN}' >>of-$6;;\n\
             *hold) echo '{HELD}' >>of-$3;;\n\
             *urgency*) echo '{{\"name\":\"urgency\",\"context\":{{\"urgency\":'$4'}}}}' >>of-$3;;\nesac\n",
            directory.display()
        );
        crate::files::tests::write_script(&flux, &script);
        HandOver::new(FluxCommand { flux, uri: "local:///x".into() }, 0)
    }

    fn order(goal: JobGoal) -> JobOrder {
        JobOrder { job: 81_856_036_864, goal }
    }

    fn answers(over: &mut HandOver, goal: JobGoal) -> Vec<OrderAnswer> {
        over.set(&[]);
        over.set(&[order(goal)]);
        over.answers()
    }

    fn log(directory: &Path, word: &str) -> usize {
        let log = std::fs::read_to_string(directory.join("log")).unwrap();
        log.lines().filter(|line| line.contains(word)).count()
    }

    #[test]
    fn a_job_is_held_once_and_its_jobspec_is_reported_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n"));
        let jobspec = "{\"x\": \"'$HOME' é\"}";
        std::fs::write(directory.path().join("jobspec"), jobspec).unwrap();
        for _ in 0..2 {
            let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
            assert_eq!((answer.state, answer.urgency), (HomeJobState::Held, Some(16)));
            assert_eq!(answer.part.as_secret_str(), jobspec);
            assert!(answer.is_last());
        }
        assert_eq!(over.answers(), [], "it was answered a moment ago");
        assert_eq!(log(directory.path(), "[hold]"), 1);
        let [answer] = answers(&mut over, JobGoal::Released(None)).try_into().unwrap();
        assert_eq!((answer.state, answer.urgency), (HomeJobState::Pending, None));
    }

    #[test]
    fn a_released_job_has_the_urgency_that_its_user_gave_it_last() {
        let urgency =
            |value: u32| format!("{{\"name\":\"urgency\",\"context\":{{\"urgency\":{value}}}}}\n");
        let submitted = format!("{SUBMITTED}\n");
        for (events, known, wanted) in [
            // The lead was restarted after it had held the job.
            (vec![20, 0], Some(20), Some("20")),
            // Then the user released it with another urgency, and it was held again.
            (vec![0, 31, 0], Some(16), Some("31")),
            // The user has released it.
            (vec![0, 20], Some(16), None),
            // The user held it.
            (vec![0], None, None),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let events: String = events.into_iter().map(urgency).collect();
            let mut over = fake(directory.path(), &format!("{submitted}{events}"));
            let [answer] = answers(&mut over, JobGoal::Released(known)).try_into().unwrap();
            let is_held = known.is_none();
            assert_eq!(answer.state == HomeJobState::Held, is_held, "{events}");
            assert_eq!(log(directory.path(), "[urgency]"), usize::from(wanted.is_some()));
            let restored = wanted.map_or(0, |it| log(directory.path(), &format!("[{it}]")));
            assert_eq!(restored, usize::from(wanted.is_some()), "{events}");
        }
    }

    /// Otherwise it would be taken for held by its user, and never released.
    #[test]
    fn a_job_that_cannot_be_looked_at_after_it_was_held_is_released_later() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n"));
        std::fs::write(directory.path().join("jobspec"), "{}").unwrap();
        let job = over.job(order(JobGoal::Held).job).unwrap();
        let held = over.hold(&order(JobGoal::Held), &job);
        assert_eq!(held, Ok(true), "its state is not known afterwards");
        let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
        assert_eq!((answer.state, answer.urgency), (HomeJobState::Held, Some(16)));
        let [answer] = answers(&mut over, JobGoal::Released(None)).try_into().unwrap();
        assert_eq!(answer.state, HomeJobState::Pending);
    }

    /// Its answer was lost, and the instance was restored from an archive.
    #[test]
    fn a_job_that_was_held_is_released_by_another_agent() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("jobspec"), "{}").unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n"));
        assert_eq!(answers(&mut over, JobGoal::Held)[0].urgency, Some(16));
        let mut other = HandOver::new(over.command.clone(), 0);
        assert_eq!(answers(&mut other, JobGoal::Held)[0].urgency, Some(16));
        let mut other = HandOver::new(over.command.clone(), 0);
        let [answer] = answers(&mut other, JobGoal::Released(None)).try_into().unwrap();
        assert_eq!((answer.state, answer.urgency), (HomeJobState::Pending, None));
        assert_eq!((log(directory.path(), "[hold]"), log(directory.path(), "[16]")), (1, 1));
    }

    #[test]
    fn a_job_that_its_user_holds_too_stays_held() {
        let directory = tempfile::tempdir().unwrap();
        let events = [SUBMITTED, MEMO, HELD, HELD, ""].join("\n");
        let mut over = fake(directory.path(), &events);
        let [answer] = answers(&mut over, JobGoal::Released(Some(16))).try_into().unwrap();
        assert_eq!((answer.state, log(directory.path(), "[16]")), (HomeJobState::Held, 0));
    }

    /// Nobody would know who has held it.
    #[test]
    fn a_job_without_a_memo_is_not_held() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n"));
        std::fs::write(directory.path().join("full"), "").unwrap();
        assert_eq!(answers(&mut over, JobGoal::Held), [], "it is tried again");
        assert_eq!((log(directory.path(), "[memo]"), log(directory.path(), "[hold]")), (1, 0));
    }

    /// It would run elsewhere as the owner of the instance.
    #[test]
    fn a_job_of_another_user_is_refused_and_not_held() {
        let guest = SUBMITTED.replace("\"userid\":0", "\"userid\":1000");
        for (events, state) in [
            (format!("{guest}\n"), HomeJobState::Pending),
            (format!("{guest}\n{HELD}\n"), HomeJobState::Held),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let mut over = fake(directory.path(), &events);
            let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
            assert_eq!((answer.state, answer.refusal), (state, Some(JobRefusal::OtherUser)));
            assert!(answer.part.is_empty());
            assert_eq!((log(directory.path(), "[hold]"), log(directory.path(), "[info]")), (0, 0));
        }
    }

    /// By `flux update`, as flux-core 0.88 records it.
    #[test]
    fn a_jobspec_is_reported_with_what_was_changed_since() {
        let update = |path: &str| {
            format!(r#"{{"timestamp":1.0,"name":"jobspec-update","context":{{"{path}":7200.0}}}}"#)
        };
        let jobspec = r#"{"attributes": {"system": {"duration": 60.0, "environment": {}}}}"#;
        let answered = |path: &str| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("jobspec"), jobspec).unwrap();
            let mut over = fake(directory.path(), &format!("{SUBMITTED}\n{}\n", update(path)));
            let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
            (answer.refusal, answer.part)
        };
        let (refusal, changed) = answered("attributes.system.duration");
        let expected = jobspec.replace("60.0", "7200.0");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!((refusal, parse(changed.as_secret_str())), (None, parse(&expected)));
        let (refusal, none) = answered("attributes.system.duration.x");
        assert_eq!((refusal, none.is_empty()), (Some(JobRefusal::NotUpdatable), true));
    }

    #[test]
    fn a_job_that_was_held_by_its_user_is_not_released_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n{HELD}\n"));
        std::fs::write(directory.path().join("jobspec"), "{}").unwrap();
        let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
        assert_eq!((answer.state, answer.urgency), (HomeJobState::Held, None));
        assert_eq!(log(directory.path(), "[hold]"), 0);
    }

    #[test]
    fn all_jobs_are_held_before_the_first_is_looked_at_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n"));
        std::fs::write(directory.path().join("jobspec"), "{}").unwrap();
        over.set(&[1, 2, 3].map(|job| JobOrder { job, goal: JobGoal::Held }));
        let answers = over.answers();
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(|answer| answer.state == HomeJobState::Held));
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        let verbs = log.lines().map(|line| line.split(['[', ']']).nth(3).unwrap());
        let first = ["eventlog", "memo", "urgency"].repeat(3);
        assert_eq!(verbs.collect::<Vec<_>>(), [first, ["eventlog", "info"].repeat(3)].concat());
    }

    /// The jobs that it waits for are not at the target: it would run before them.
    #[test]
    fn a_job_that_waits_for_another_one_is_not_held() {
        let waits = r#"{"timestamp":1.0,"name":"dependency-add","context":{"description":"after-success=ƒ2"}}"#;
        for held in [String::new(), format!("{HELD}\n")] {
            let directory = tempfile::tempdir().unwrap();
            let mut over = fake(directory.path(), &format!("{NEW}\n{waits}\n{held}"));
            let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
            assert_eq!((answer.state, answer.urgency), (HomeJobState::Pending, None));
            assert_eq!((log(directory.path(), "[hold]"), log(directory.path(), "[info]")), (0, 0));
        }
    }

    #[test]
    fn a_message_of_a_canceled_job_is_one_argument() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n{HELD}\n"));
        let message = "ran as Burst \"b\": exit code 7";
        for _ in 0..2 {
            let [answer] =
                answers(&mut over, JobGoal::Canceled(message.into())).try_into().unwrap();
            assert_eq!(answer.state, HomeJobState::Finished);
        }
        assert_eq!(log(directory.path(), &format!("[--message={message}]")), 1);
    }

    /// Its user has canceled it: it must not run elsewhere.
    #[test]
    fn a_job_that_was_canceled_is_neither_held_nor_canceled_again() {
        let exception =
            r#"{"name":"exception","context":{"type":"cancel","severity":0,"note":""}}"#;
        for events in [format!("{SUBMITTED}\n"), format!("{SUBMITTED}\n{HELD}\n")] {
            let directory = tempfile::tempdir().unwrap();
            let mut over = fake(directory.path(), &format!("{events}{exception}\n"));
            let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
            assert_eq!(answer.state, HomeJobState::Pending);
            assert_eq!(answers(&mut over, JobGoal::Canceled("x".into())), [], "it will finish");
            assert_eq!((log(directory.path(), "[hold]"), log(directory.path(), "[raise]")), (0, 0));
        }
    }

    #[test]
    fn if_flux_does_not_answer_in_time_the_next_order_is_executed_next_time() {
        let command = FluxCommand { flux: "/no/flux".into(), uri: "local:///x".into() };
        let mut over = HandOver::new(command, 0);
        over.set(&[1, 2, 3].map(|job| JobOrder { job, goal: JobGoal::Held }));
        let tried = |over: &HandOver| {
            over.orders.iter().map(|(_, at)| u8::from(at.is_some())).collect::<Vec<_>>()
        };
        for expected in [[1, 0, 0], [1, 1, 0], [1, 1, 1]] {
            assert_eq!(over.answers(), []);
            assert_eq!(tried(&over), expected);
        }
    }

    #[test]
    fn what_is_not_pending_any_more_is_reported_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let alloc = r#"{"timestamp":1.0,"name":"alloc","context":{}}"#;
        for (events, state) in [
            (format!("{SUBMITTED}\n{alloc}\n"), HomeJobState::Started),
            (format!("{SUBMITTED}\n{alloc}\n{CLEAN}\n"), HomeJobState::Finished),
            (String::new(), HomeJobState::Missing),
        ] {
            let mut over = fake(directory.path(), &events);
            let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
            assert_eq!(answer.state, state);
        }
    }

    /// Otherwise it would be given up, although it waits at home.
    #[test]
    fn a_job_is_missing_only_if_flux_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n{HELD}\n"));
        std::fs::write(directory.path().join("jobspec"), "{}").unwrap();
        std::fs::write(directory.path().join("busy"), "").unwrap();
        for goal in [JobGoal::Held, JobGoal::Canceled("x".into()), JobGoal::Released(None)] {
            assert_eq!(answers(&mut over, goal), [], "it is tried again");
        }
        std::fs::remove_file(directory.path().join("busy")).unwrap();
        assert_eq!(answers(&mut over, JobGoal::Held)[0].state, HomeJobState::Held);
        std::fs::write(directory.path().join("events"), "").unwrap();
        assert_eq!(answers(&mut over, JobGoal::Held)[0].state, HomeJobState::Missing);
    }

    #[test]
    fn a_jobspec_that_is_too_large_is_not_sent() {
        let directory = tempfile::tempdir().unwrap();
        let mut over = fake(directory.path(), &format!("{SUBMITTED}\n{HELD}\n"));
        std::fs::write(directory.path().join("jobspec"), "x".repeat(MAX_JOBSPEC + 1)).unwrap();
        let [answer] = answers(&mut over, JobGoal::Held).try_into().unwrap();
        assert!(answer.part.is_empty() && answer.is_last());
        assert!(usize::try_from(answer.total).unwrap() > MAX_JOBSPEC);
    }
}
