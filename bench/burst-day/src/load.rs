//! Loads: the jobs that are submitted on a day.
//!
//! Sizes are powers of two, log-uniform in two stages: most jobs are small, some need half of home or
//! all of it. Durations are log-normal. Both are the usual shape of logs of parallel computers: Downey
//! (1997) found them uniform in the logarithm, Lublin and Feitelson (2003) refined that to two stages.
//! Jobs of one day are drawn until the load has its share of home, so that it does not depend on the seed.

use crate::{DAY, HOME_NODES, HOUR};

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id, in the order of submission.
    pub id: u64,
    /// When it is submitted, in seconds since midnight.
    pub submitted: u64,
    /// How many whole nodes it needs.
    pub nodes: u32,
    /// For how long it runs, in seconds. The scheduler does not know it.
    pub duration: u64,
    /// Its time limit, in seconds, which the scheduler does know. It is never shorter.
    pub limit: u64,
}

/// The jobs of a day, as a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// What it is like, for captions.
    pub about: &'static str,
    /// How much work is submitted at any time of the day, as a share of what home can do.
    pub all_day: f64,
    /// More of it at one time.
    pub wave: Option<Wave>,
    /// Jobs that are larger than home, which no share includes.
    pub large_jobs: u32,
}

/// Work that is submitted beside that of the whole day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wave {
    /// When it begins, in seconds since midnight.
    pub from: u64,
    /// When it ends.
    pub until: u64,
    /// How much work is submitted meanwhile, as a share of what home can do in that time.
    pub share: f64,
}

/// Home is large enough.
pub const STEADY: Load = Load {
    name: "steady",
    about: "60 % of home, all day",
    all_day: 0.6,
    wave: None,
    large_jobs: 2,
};

/// A deadline: much more than home can do is submitted in one morning.
pub const WAVE: Load = Load {
    name: "wave",
    about: "25 % of home all day, and 250 % more from 9:00 to 12:00",
    all_day: 0.25,
    wave: Some(Wave { from: 9 * HOUR, until: 12 * HOUR, share: 2.5 }),
    large_jobs: 2,
};

/// Home is too small.
pub const HEAVY: Load = Load {
    name: "heavy",
    about: "120 % of home, all day",
    all_day: 1.2,
    wave: None,
    large_jobs: 2,
};

/// All of them.
pub const LOADS: [Load; 3] = [STEADY, WAVE, HEAVY];

/// Which share of the jobs is small (up to [`LARGEST_SMALL`] nodes); the rest needs up to all of home.
const SMALL_SHARE: f64 = 0.85;
/// Powers of two.
const LARGEST_SMALL: u32 = 3;
const HOME_POWER: u32 = HOME_NODES.ilog2();

/// Median of the durations in seconds, and standard deviation of their logarithm: two thirds of the jobs
/// run for 4 to 40 minutes, the mean is 25 minutes. Shorter ones than [`SHORTEST`] are not worth a burst;
/// a queue limits jobs to [`LONGEST`].
const MEDIAN: f64 = 720.0;
const DEVIATION: f64 = 1.2;
const SHORTEST: u64 = 30;
const LONGEST: u64 = 6 * HOUR;

/// Sizes of jobs that are larger than home.
const LARGE_SIZES: [u32; 2] = [48, 64];

/// By how much a time limit is too long at most: users request up to three times what jobs need (Mu'alem
/// and Feitelson, 2001, found that most jobs use less than half of it).
const LARGEST_MARGIN: f64 = 3.0;

impl Load {
    /// The jobs of a day, in the order of submission.
    pub fn jobs(&self, seed: u64) -> Vec<Job> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut jobs = Vec::new();
        add_work(&mut jobs, self.all_day, 0..DAY, &mut random);
        if let Some(Wave { from, until, share }) = self.wave {
            add_work(&mut jobs, share, from..until, &mut random);
        }
        for number in 0..self.large_jobs {
            let nodes = LARGE_SIZES[number as usize % LARGE_SIZES.len()];
            let submitted = match self.wave {
                Some(wave) => random.u64(wave.from..wave.until),
                // In working hours.
                None => random.u64(8 * HOUR..18 * HOUR),
            };
            jobs.push(new_job(nodes, submitted, &mut random));
        }
        jobs.sort_by_key(|job| job.submitted);
        for (job, id) in jobs.iter_mut().zip(1..) {
            job.id = id;
        }
        jobs
    }
}

/// Adds jobs of at most home's size until they are a share of what home can do in that time.
fn add_work(
    jobs: &mut Vec<Job>,
    share: f64,
    time: std::ops::Range<u64>,
    random: &mut fastrand::Rng,
) {
    let capacity = u64::from(HOME_NODES) * (time.end - time.start);
    let wanted = (capacity as f64 * share) as u64;
    let mut sum = 0;
    while sum < wanted {
        let powers = match random.f64() < SMALL_SHARE {
            true => 0..=LARGEST_SMALL,
            false => LARGEST_SMALL + 1..=HOME_POWER,
        };
        let job = new_job(1 << random.u32(powers), random.u64(time.clone()), random);
        sum += u64::from(job.nodes) * job.duration;
        jobs.push(job);
    }
}

fn new_job(nodes: u32, submitted: u64, random: &mut fastrand::Rng) -> Job {
    let duration = MEDIAN * (DEVIATION * normal(random)).exp();
    let duration = (duration as u64).clamp(SHORTEST, LONGEST);
    let margin = 1.0 + random.f64() * (LARGEST_MARGIN - 1.0);
    let limit = (duration as f64 * margin) as u64;
    Job { id: 0, submitted, nodes, duration, limit: limit.max(duration) }
}

/// A number with a normal distribution, nearly: the sum of twelve uniform ones.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(jobs: &[Job]) -> f64 {
        let fits = jobs.iter().filter(|job| job.nodes <= HOME_NODES);
        fits.map(|job| u64::from(job.nodes) * job.duration).sum::<u64>() as f64
    }

    #[test]
    fn a_load_has_its_share_of_home() {
        let capacity = (u64::from(HOME_NODES) * DAY) as f64;
        for seed in 0..20 {
            for (load, share) in [(STEADY, 0.6), (WAVE, 0.25 + 2.5 / 8.0), (HEAVY, 1.2)] {
                let jobs = load.jobs(seed);
                let is = work(&jobs) / capacity;
                // The last job of each part may be beyond it, by at most 32 nodes for 6 hours.
                assert!(is >= share && is < share + 0.5, "{} {seed}: {is}", load.name);
                let large = jobs.iter().filter(|job| job.nodes > HOME_NODES).count();
                assert_eq!(large, 2);
            }
        }
    }

    #[test]
    fn jobs_are_in_order_and_within_their_limits() {
        for load in LOADS {
            let jobs = load.jobs(3);
            assert!(jobs.is_sorted_by_key(|job| job.submitted));
            assert!(jobs.iter().zip(1..).all(|(job, id)| job.id == id));
            assert!(jobs.iter().all(|job| job.submitted < DAY && job.duration <= job.limit));
            assert!(jobs.iter().all(|job| (SHORTEST..=LONGEST).contains(&job.duration)));
        }
    }

    #[test]
    fn most_work_of_a_wave_is_submitted_in_it() {
        let jobs = WAVE.jobs(1);
        let within: Vec<Job> = (jobs.iter())
            .filter(|job| (9 * HOUR..12 * HOUR).contains(&job.submitted))
            .cloned()
            .collect();
        assert!(work(&within) > 0.5 * work(&jobs));
    }

    #[test]
    fn durations_are_as_documented() {
        let mut durations: Vec<u64> =
            (0..30).flat_map(|seed| HEAVY.jobs(seed)).map(|job| job.duration).collect();
        durations.sort_unstable();
        let median = durations[durations.len() / 2];
        assert!((660..780).contains(&median), "{median}");
        let mean = durations.iter().sum::<u64>() / durations.len() as u64;
        assert!((1380..1600).contains(&mean), "{mean}");
    }
}
