//! Handing pointers from thread to thread: the cases of [`ring`](crate::ring), with their goals.

use crate::harness::Figure;
use crate::ring::cases;
use crate::row::{Goal, Row};
use std::time::Duration;

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

/// Every case, its runs interleaved round by round.
pub(crate) fn run() -> Vec<Row> {
    const ROUNDS: usize = 15;
    const SLICE: Duration = Duration::from_millis(4);
    let mut rows = Vec::new();
    let mut singly = None;
    for mut case in cases() {
        // Elements for a slice of the first, which is ours; the same number for all.
        let trial = case.runs[0].1(20_000).max(Duration::from_micros(1));
        let n = (20_000.0 * SLICE.as_secs_f64() / trial.as_secs_f64()).clamp(10_000.0, 4_000_000.0) as u64;
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); case.runs.len()];
        for round in 0..ROUNDS {
            for i in 0..case.runs.len() {
                // Another one begins each round.
                let i = (i + round) % case.runs.len();
                samples[i].push(case.runs[i].1(n).as_nanos() as f64 / n as f64);
            }
        }
        let mut figures: Vec<Figure> =
            case.runs.iter().zip(samples).map(|((name, _), samples)| Figure::of(*name, samples)).collect();
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
