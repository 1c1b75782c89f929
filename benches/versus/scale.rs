//! What refs and threads cost in memory, by the resident set of a fresh process.

use crate::harness::Figure;
use crate::row::{Goal, Row};
use crate::{Part, backend};
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Backend, Flavor, Plain, Sched};
use std::fs;
use std::thread;

const REFS: usize = 1_000_000;
const THREADS: usize = 100_000;
const TOUCHED: usize = 100;

pub(crate) fn run(part: Part) -> Vec<Row> {
    match part {
        Part::Refs => refs(),
        Part::Threads => threads::<Sched>("Sched"),
        Part::ThreadsPlain => threads::<Plain>("Plain"),
        Part::Whole | Part::Membarrier | Part::Jemalloc | Part::Mimalloc => Vec::new(), // All of it wants a clean heap.
    }
}

/// Bytes of this process that are in memory.
fn resident() -> f64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has it");
    let line = rollup.lines().find(|line| line.starts_with("Rss:")).expect("it has a line for it");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB");
    kib * 1024.0
}

/// CPUs that can ever exist: the last number of a list like `0-3,8-11`, plus one.
fn possible_cpus() -> usize {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").expect("Linux has it");
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.expect("a list of CPUs") + 1
}

fn figure(name: &str, value: f64) -> Figure {
    Figure { name: name.into(), min: value, median: value }
}

fn row(work: String, unit: &str, ours: Figure, rival: Option<Figure>, goal: Goal) -> Row {
    Row { work, backend: backend(), unit: unit.into(), ours, rival, goal }
}

/// A million refs: what each takes, and what is left when they are gone.
fn refs() -> Vec<Row> {
    let mut refs: Vec<Option<PercpuRef>> = Vec::new();
    refs.resize_with(REFS, || None); // Written to, so its pages do not count: it is the program's, not the refs'.
    let warm_up = PercpuRef::new(|| {});
    warm_up.get();
    warm_up.put();
    let start = resident();
    refs.fill_with(|| Some(PercpuRef::new(|| {})));
    for r in refs.iter().flatten() {
        r.get();
        r.put();
    }
    let per_ref = (resident() - start) / REFS as f64;
    // Every CPU counts, so that every cell is there.
    let on_all_cpus = {
        let all = crate::harness::Affinity::get();
        for cpu in 0..thread::available_parallelism().map_or(1, usize::from) {
            crate::harness::pin(cpu);
            for r in refs.iter().flatten() {
                r.get();
                r.put();
            }
        }
        all.set();
        (resident() - start) / REFS as f64
    };
    refs.fill_with(|| None);
    let at_once = resident();
    // The C library keeps freed blocks of the heap for the program; what is asked here is whether *we* keep any.
    // SAFETY: it may be called at any time.
    unsafe { libc::malloc_trim(0) };
    let after = resident();
    let handle = size_of::<Option<PercpuRef>>();
    let limit = 8.0 * possible_cpus() as f64 + 96.0;
    let goal = |goal| if Sched::backend() == Backend::Rseq { goal } else { Goal::None };
    let work = |what: &str| format!("{REFS} refs: {what}");
    vec![
        row(
            work(&format!("each, beside its handle of {handle} bytes")),
            "B",
            figure("used on one CPU", per_ref),
            None,
            Goal::None,
        ),
        row(
            work(&format!("each, beside its handle of {handle} bytes")),
            "B",
            figure("used on all CPUs", on_all_cpus),
            None,
            goal(Goal::AtMost(limit)),
        ),
        row(
            work("process afterwards"),
            "MB",
            figure("all dropped", at_once / 1e6),
            Some(figure("before", start / 1e6)),
            Goal::None,
        ),
        row(
            work("process afterwards, heap trimmed"),
            "MB",
            figure("all dropped", after / 1e6),
            Some(figure("before", start / 1e6)),
            goal(Goal::AtMost(1.05)),
        ),
    ]
}

/// Threads come and go, one after another, and each touches some refs: memory must not grow with their number.
fn threads<F: Flavor>(name: &str) -> Vec<Row> {
    let refs: Vec<PercpuRef<F>> =
        (0..TOUCHED).map(|_| PercpuRef::builder().flavor(F::default()).build(|| {})).collect();
    let touch = || {
        for r in &refs {
            r.get();
            r.put();
        }
    };
    let run = |threads: usize| {
        for _ in 0..threads {
            thread::scope(|s| drop(s.spawn(touch)));
        }
    };
    run(THREADS / 100);
    let early = resident();
    run(THREADS - THREADS / 100);
    let late = resident();
    for r in &refs {
        assert_eq!(r.estimate(), 1, "as many puts as gets");
        r.kill_sync().expect("not killed yet");
    }
    vec![row(
        format!("threads one after another, {TOUCHED} refs each: {name}"),
        "MB",
        figure(&format!("after {THREADS}"), late / 1e6),
        Some(figure(&format!("after {}", THREADS / 100), early / 1e6)),
        Goal::AtMost(1.05),
    )]
}
