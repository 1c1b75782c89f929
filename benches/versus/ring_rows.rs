//! Handing pointers from thread to thread: the cases of [`ring`](crate::ring), with their goals.

use crate::case::Run;
use crate::harness::Figure;
use crate::ring::{cases, disturbances};
use crate::row::{Goal, Row};
use std::time::{Duration, Instant};

/// The goals of a case: how the rival's name begins, and how much of its time ours may take.
fn goals(case: &str) -> &'static [(&'static str, f64)] {
    match case {
        "one thread, size 1000" => &[("C ptr_ring", 0.70), ("rtrb", 0.80), ("ArrayQueue", 0.45), ("ck_ring", 1.45)],
        "one thread, batch 64" => &[("C ptr_ring", 0.30), ("rtrb", 1.6), ("ArrayQueue", 0.2)],
        "two threads, size 1024" => &[("C ptr_ring", 0.70), ("rtrb", 0.80), ("ArrayQueue", 0.40)],
        "two threads, batch 16" => &[("C ptr_ring", 0.40), ("rtrb", 0.85)],
        "two threads, batch 64" => &[("C ptr_ring", 0.40), ("rtrb", 1.30), ("rte_ring", 0.90)],
        "two threads, size 256, batch 64" => &[("C ptr_ring", 0.40), ("rtrb", 1.30)],
        "two threads, slow consumer" | "two threads, slow producer" => &[("the slow side alone", 1.10)],
        "one thread, locked" => &[("C ptr_ring", 1.10), ("ArrayQueue", 0.75)],
        "2 to 2" => &[("C ptr_ring", 0.85), ("ArrayQueue", 0.60)],
        "2 to 2, batch 16" => &[("C ptr_ring", 0.65), ("ArrayQueue", 0.45), (SINGLY, 0.65)],
        "2 to 2, batch 64" => &[("C ptr_ring", 0.60), ("ArrayQueue", 0.30), (SINGLY, 0.60)],
        _ => &[],
    }
}

/// Our own, element by element, as a rival of our own in batches.
const SINGLY: &str = "PtrRing, singly";

/// How many samples of each contender there shall be: an odd number, so that the median is one of them.
const ROUNDS: usize = 31;
/// How long a case may take until it has them.
const LIMIT: Duration = Duration::from_secs(4);

/// A contender, and its samples: nanoseconds for an element, and whether nothing disturbed them.
struct Samples {
    name: &'static str,
    run: Run,
    elements: u64,
    taken: Vec<(f64, bool)>,
}

impl Samples {
    fn new(name: &'static str, mut run: Run, slice: Duration) -> Self {
        const TRIAL: u64 = 20_000;
        let trial = run(TRIAL).min(run(TRIAL)).max(Duration::from_micros(1));
        let elements = TRIAL as f64 * slice.as_secs_f64() / trial.as_secs_f64();
        Self { name, run, elements: elements.clamp(10_000.0, 4_000_000.0) as u64, taken: Vec::new() }
    }

    fn quiet(&self) -> impl Iterator<Item = f64> {
        self.taken.iter().filter(|(_, quiet)| *quiet).map(|(sample, _)| *sample)
    }

    fn take(&mut self) {
        let before = disturbances();
        let sample = (self.run)(self.elements).as_nanos() as f64 / self.elements as f64;
        self.taken.push((sample, disturbances() == before));
    }

    fn figure(&self) -> Figure {
        let quiet: Vec<f64> = self.quiet().collect();
        // Disturbed samples count only where there is hardly anything else.
        let all = || self.taken.iter().map(|(sample, _)| *sample).collect();
        Figure::of(self.name, if quiet.len() >= ROUNDS / 3 { quiet } else { all() })
    }
}

/// Every case, its runs interleaved round by round.
pub(crate) fn run() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut singly = None;
    for case in cases() {
        // With more threads than processors a slice has to be longer than what the scheduler gives to each.
        let slice = Duration::from_millis(if case.name.starts_with("2 to 2") { 4 } else { 1 });
        let mut contenders: Vec<_> = case.runs.into_iter().map(|(name, run)| Samples::new(name, run, slice)).collect();
        let begin = Instant::now();
        let mut round = 0;
        while contenders.iter().any(|c| c.quiet().count() < ROUNDS) && (round < ROUNDS || begin.elapsed() < LIMIT) {
            // Another one begins each round.
            for i in 0..contenders.len() {
                let i = (i + round) % contenders.len();
                contenders[i].take();
            }
            round += 1;
        }
        let mut figures: Vec<Figure> = contenders.iter().map(Samples::figure).collect();
        match case.name {
            "2 to 2" => singly = Some(Figure { name: SINGLY.into(), ..figures[0].clone() }),
            "2 to 2, batch 16" | "2 to 2, batch 64" => figures.extend(singly.clone()),
            _ => {}
        }
        for rival in &figures[1..] {
            let goal = goals(case.name).iter().find(|(name, _)| rival.name.starts_with(name));
            rows.push(Row {
                work: case.name.into(),
                backend: "-".into(),
                unit: "ns".into(),
                ours: figures[0].clone(),
                rival: Some(rival.clone()),
                goal: goal.map_or(Goal::None, |(_, limit)| Goal::AtMost(*limit)),
            });
        }
    }
    rows
}
