//! Pages: the cases of [`page_pool`](crate::page_pool), with their goals.

use crate::Part;
use crate::harness::Figure;
use crate::page_pool::{allocator, cases};
use crate::row::{Goal, Row};
use crate::switches::switches;
use std::time::Duration;

/// The goals of a case: the rival, and how much of its time ours may take.
fn goals(case: &str) -> &'static [(&'static str, f64)] {
    match case {
        "one thread, one page" => {
            &[("jemalloc", 0.15), ("mimalloc", 0.12), ("glibc malloc", 0.08), ("ArrayQueue", 0.40)]
        }
        "one thread, burst 64" => &[("mimalloc", 0.12), ("ArrayQueue", 0.6), ("object-pool", 0.35)],
        "alloc here, free there, 16 handed over" => {
            &[("ArrayQueue", 0.75), ("mimalloc", 0.40), ("jemalloc", 0.05), ("hand-over alone", 1.3)]
        }
        _ => &[],
    }
}

/// Every case, its runs interleaved round by round.
pub(crate) fn run(part: Part) -> Vec<Row> {
    const ROUNDS: usize = 15;
    const SLICE: Duration = Duration::from_millis(1);
    const RETRIES: usize = 8;
    let wanted = part.allocator();
    if wanted.is_some_and(|wanted| wanted != allocator()) {
        eprintln!("no {} rows: it cannot be preloaded (Debian has it)", wanted.unwrap_or_default());
        return Vec::new();
    }
    let mut rows = Vec::new();
    for mut case in cases(wanted.is_some()) {
        // As many pages for each as take a slice, the warm-up aside.
        let sizes: Vec<u64> = case
            .runs
            .iter_mut()
            .map(|(_, run)| {
                run(2_000);
                let trial = run(10_000).max(Duration::from_micros(1));
                (10_000.0 * SLICE.as_secs_f64() / trial.as_secs_f64()).clamp(2_000.0, 4_000_000.0) as u64
            })
            .collect();
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); case.runs.len()];
        for round in 0..ROUNDS {
            for i in 0..case.runs.len() {
                // Another one begins each round.
                let i = (i + round) % case.runs.len();
                let mut slice = || {
                    let before = switches();
                    let took = case.runs[i].1(sizes[i]).as_nanos() as f64 / sizes[i] as f64;
                    (took, switches() == before)
                };
                let mut sample = slice();
                // Another job had this CPU meanwhile.
                for _ in 0..RETRIES {
                    if sample.1 {
                        break;
                    }
                    sample = slice();
                }
                samples[i].push(sample.0);
            }
        }
        let figures: Vec<Figure> =
            case.runs.iter().zip(samples).map(|((name, _), samples)| Figure::of(*name, samples)).collect();
        for rival in &figures[1..] {
            let goal = goals(case.name).iter().find(|(name, _)| *name == rival.name);
            rows.push(Row {
                work: case.name.into(),
                backend: crate::backend(),
                unit: "ns".into(),
                ours: figures[0].clone(),
                rival: Some(rival.clone()),
                goal: goal.map_or(Goal::None, |(_, limit)| Goal::AtMost(*limit)),
            });
        }
    }
    rows
}
