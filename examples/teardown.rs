//! Shared objects that are torn down while everybody uses them.
//!
//! A word index of the text under a folder serves look-ups from many threads. Again and again it is killed, drained,
//! released and replaced by a new one. The same job is done with a count of each kind: `PercpuRef<Plain>`,
//! `PercpuRef<Sched>` and `Arc`. In the end the books have to balance: as many puts as gets, one release for each index,
//! nobody who got in after the confirm, nobody who looked into an index after its release.
//!
//! ```text
//! cargo run --release --example teardown
//! cargo run --release --example teardown -- --path /usr/share/doc --threads 8 --seconds 30 --flavor sched --json
//! ```

#[path = "teardown/corpus.rs"]
mod corpus;
#[path = "teardown/counted.rs"]
mod counted;
#[path = "teardown/out.rs"]
mod out;
#[path = "teardown/table.rs"]
mod table;

use clap::Parser;
use corpus::{Corpus, Index};
use counted::{ArcCount, Counted, Kind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use out::Out;
use percpu_ref::PercpuRef;
use percpu_ref::rcu::{Flavor, Plain, Sched};
use serde_json::json;
use std::error::Error;
use std::hint::black_box;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use table::Times;

/// Tears a word index down while threads look words up in it, and checks that nothing went wrong.
#[derive(Parser)]
#[command(about, version)]
struct Options {
    /// Threads that look words up [default: one a CPU, at least 2]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How long to serve, all counts together: more than 0
    #[arg(long, default_value_t = 9.0)]
    seconds: f64,
    /// The count to use; may be given more than once [default: all]
    #[arg(long, value_enum)]
    flavor: Vec<Kind>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The folder, or file, whose words are indexed [default: this repository]
    #[arg(long)]
    path: Option<PathBuf>,
}

/// One index and its count.
struct Generation<C> {
    count: C,
    index: Index,
    life: Arc<Life>,
}

/// What happened to an index, and when.
#[derive(Default)]
struct Life {
    killed: OnceLock<Instant>,
    confirmed_at: OnceLock<Instant>,
    released_at: OnceLock<Instant>,
    /// Set first thing in `confirm`.
    confirmed: AtomicBool,
    /// Set first thing in `release`: the index must not be looked into any more.
    released: AtomicBool,
    releases: AtomicU64,
}

impl Life {
    fn since_kill(&self, then: &OnceLock<Instant>) -> Duration {
        match (self.killed.get(), then.get()) {
            (Some(&killed), Some(&then)) => then.saturating_duration_since(killed),
            _ => Duration::ZERO,
        }
    }
}

/// What a worker did.
#[derive(Default)]
struct Books {
    lookups: u64,
    hits: u64,
    gets: u64,
    puts: u64,
    /// Look-ups that found the index killed.
    turned_away: u64,
    /// Got in though the confirm had run before.
    late: u64,
    /// Held a reference, and yet the index had been released.
    dead: u64,
}

impl Books {
    fn add(mut self, other: Self) -> Self {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.gets += other.gets;
        self.puts += other.puts;
        self.turned_away += other.turned_away;
        self.late += other.late;
        self.dead += other.dead;
        self
    }
}

/// What the job came to with one kind of count.
struct Outcome {
    books: Books,
    teardowns: u64,
    releases: u64,
    /// Misuse that the library reported.
    reports: u64,
    confirm: Times,
    release: Times,
    alone: f64,
    together: f64,
}

impl Outcome {
    /// Why the books do not balance; nothing if they do.
    fn mistakes(&self) -> Vec<String> {
        let books = &self.books;
        let checks = [
            (books.gets != books.puts, format!("{} gets but {} puts", books.gets, books.puts)),
            (self.releases != self.teardowns, format!("{} releases of {} indexes", self.releases, self.teardowns)),
            (books.late > 0, format!("{} got in after the confirm", books.late)),
            (books.dead > 0, format!("{} looked into a released index", books.dead)),
            (self.reports > 0, format!("{} reports of misuse or of a stall", self.reports)),
            (books.lookups == 0, "nothing was looked up".into()),
        ];
        checks.into_iter().filter(|(wrong, _)| *wrong).map(|(_, why)| why).collect()
    }
}

/// Where workers find the index of the moment.
struct Current<C> {
    generation: Mutex<Arc<Generation<C>>>,
    /// Changes with `generation`: workers keep what they have until it does.
    number: AtomicU64,
    stop: AtomicBool,
}

impl<C: Counted> Current<C> {
    fn get(&self) -> Arc<Generation<C>> {
        Arc::clone(&self.generation.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, generation: Arc<Generation<C>>) {
        *self.generation.lock().unwrap_or_else(PoisonError::into_inner) = generation;
        self.number.fetch_add(1, Ordering::Release);
    }
}

/// What a count takes to come to life: it tells in `life` what becomes of it.
fn generation<C: Counted>(index: Index) -> Arc<Generation<C>> {
    let life = Arc::new(Life::default());
    let told = Arc::clone(&life);
    let count = C::new(move || {
        told.released.store(true, Ordering::Release);
        let _ = told.released_at.set(Instant::now());
        told.releases.fetch_add(1, Ordering::Relaxed);
    });
    Arc::new(Generation { count, index, life })
}

/// How many look-ups a worker does before it lets go of the index.
const VISIT: usize = 64;

/// Looks words up until told to stop.
fn serve<C: Counted>(current: &Current<C>, words: &[String], seed: u64) -> Books {
    let mut books = Books::default();
    let mut random = seed;
    let mut number = current.number.load(Ordering::Acquire);
    let mut generation = current.get();
    while !current.stop.load(Ordering::Relaxed) {
        let newest = current.number.load(Ordering::Acquire);
        if newest != number {
            number = newest;
            generation = current.get();
        }
        if visit(&generation, words, &mut random, &mut books).is_none() {
            books.turned_away += 1;
            thread::yield_now(); // A new index is on its way.
        }
    }
    books
}

/// Takes a reference for a while and looks words up under further ones; `None` if the index has been killed.
fn visit<C: Counted>(of: &Generation<C>, words: &[String], random: &mut u64, books: &mut Books) -> Option<()> {
    let Generation { count, index, life } = of;
    let mut look_up = |books: &mut Books| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let word = &words[(*random % words.len() as u64) as usize];
        books.dead += u64::from(life.released.load(Ordering::Acquire));
        books.hits += u64::from(black_box(index.find(word)).is_some());
        books.lookups += 1;
    };

    let confirmed = life.confirmed.load(Ordering::Acquire);
    let visiting = count.tryget_live()?;
    books.gets += 1;
    books.late += u64::from(confirmed);

    for i in 0..VISIT {
        match i % 16 {
            // Get in whether or not it has been killed: we are inside, so it cannot fail.
            7 => {
                let held = count.tryget();
                books.gets += u64::from(held.is_some());
                look_up(books);
                if let Some(held) = held {
                    books.puts += 1;
                    count.put(held);
                }
            }
            // Get in as a newcomer.
            15 => {
                let confirmed = life.confirmed.load(Ordering::Acquire);
                let entered = count.enter(|| look_up(books)).is_some();
                books.gets += u64::from(entered);
                books.puts += u64::from(entered);
                books.late += u64::from(entered && confirmed);
                books.turned_away += u64::from(!entered);
            }
            _ => {
                let held = count.get(&visiting);
                books.gets += 1;
                look_up(books);
                books.puts += 1;
                count.put(held);
            }
        }
    }
    books.puts += 1;
    count.put(visiting);
    Some(())
}

/// Nanoseconds for one get and put on a live index, `threads` at once: the median of some rounds.
fn get_put<C: Counted>(of: &Generation<C>, threads: usize) -> f64 {
    const ROUNDS: usize = 15;
    const PAIRS: u32 = 100_000;
    let arrived = AtomicU64::new(0);
    let measure = || {
        let mut rounds = Vec::new();
        let held = of.count.tryget_live().expect("the index is alive");
        for round in 1..=ROUNDS {
            // Starting together matters, so nobody sleeps here.
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < (round * threads) as u64 {
                thread::yield_now();
            }
            let begin = Instant::now();
            for _ in 0..PAIRS {
                let more = black_box(&of.count).get(black_box(&held));
                black_box(&of.count).put(black_box(more));
            }
            rounds.push(begin.elapsed().as_nanos() as f64 / f64::from(PAIRS));
        }
        of.count.put(held);
        rounds
    };
    let mut rounds: Vec<f64> = thread::scope(|s| {
        let others: Vec<_> = (1..threads).map(|_| s.spawn(measure)).collect();
        let own = measure();
        own.into_iter().chain(others.into_iter().flat_map(|other| other.join().expect("a worker panicked"))).collect()
    });
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Does the whole job with one kind of count.
fn run<C: Counted>(corpus: &Corpus, threads: usize, time: Duration, reports: &AtomicU64, bar: &ProgressBar) -> Outcome {
    let reported = reports.load(Ordering::Relaxed);
    let first = generation::<C>(corpus.index());
    let words = first.index.vocabulary();
    let alone = get_put(&first, 1);
    let together = get_put(&first, threads);

    let current = Current { generation: Mutex::new(first), number: AtomicU64::new(0), stop: AtomicBool::new(false) };
    let mut lives = Vec::new();
    let end = Instant::now() + time;
    let books = thread::scope(|s| {
        let workers: Vec<_> = (1..=threads as u64)
            .map(|i| {
                s.spawn({
                    let (current, words) = (&current, &words);
                    move || serve(current, words, i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                })
            })
            .collect();
        loop {
            // The next one is built while the present one serves.
            let next = generation::<C>(corpus.index());
            let last = Instant::now() >= end;
            lives.push(tear_down(&current.get()));
            bar.set_position(time.saturating_sub(end.saturating_duration_since(Instant::now())).as_millis() as u64);
            bar.set_message(format!("{} indexes torn down", lives.len()));
            if last {
                // It was never served from, but it has a life to end like all others.
                lives.push(tear_down(&next));
                break;
            }
            current.set(next);
        }
        current.stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).fold(Books::default(), Books::add)
    });
    Outcome {
        books,
        teardowns: lives.len() as u64,
        releases: lives.iter().map(|life| life.releases.load(Ordering::Relaxed)).sum(),
        reports: reports.load(Ordering::Relaxed) - reported,
        confirm: Times::new(lives.iter().map(|life| life.since_kill(&life.confirmed_at)).collect()),
        release: Times::new(lives.iter().map(|life| life.since_kill(&life.released_at)).collect()),
        alone,
        together,
    }
}

/// Kills an index that is in use and waits until it is released.
fn tear_down<C: Counted>(of: &Generation<C>) -> Arc<Life> {
    let told = Arc::clone(&of.life);
    let _ = of.life.killed.set(Instant::now());
    of.count.kill_and_confirm(move || {
        told.confirmed.store(true, Ordering::Release);
        let _ = told.confirmed_at.set(Instant::now());
    });
    of.count.wait_zero();
    Arc::clone(&of.life)
}

fn main() -> ExitCode {
    let options = Options::parse();
    match work(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

/// Whether the books balance; an error is about the options, or the output.
fn work(options: &Options) -> Result<bool, Box<dyn Error>> {
    if !(options.seconds > 0.0 && options.seconds <= 86_400.0) {
        return Err(format!("--seconds {} does not do: more than 0, and at most 86400", options.seconds).into());
    }
    let cpus = thread::available_parallelism().map_or(2, usize::from);
    let threads = options.threads.map_or(cpus.clamp(2, 1024), usize::from);
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = options.path.clone().unwrap_or_else(|| if here.is_dir() { here } else { ".".into() });
    let corpus = Corpus::find(&path)?;
    let words = corpus.index().words();
    if words == 0 {
        return Err(format!("the text files under {} have no words to index", path.display()).into());
    }
    let kinds = if options.flavor.is_empty() { Kind::ALL.to_vec() } else { options.flavor.clone() };
    let time = Duration::from_secs_f64(options.seconds / kinds.len() as f64);

    let reports = Arc::new(AtomicU64::new(0));
    percpu_ref::set_report_hook({
        let reports = Arc::clone(&reports);
        move |report| {
            eprintln!("report: {report}");
            reports.fetch_add(1, Ordering::Relaxed);
        }
    });

    let mut out = Out::new();
    if !options.json {
        writeln!(
            out,
            "teardown: {} of {} ({} KiB), {} on {}, Sched on {:?}, Plain on {:?}\n",
            some(words, "word"),
            some(corpus.files(), "file"),
            corpus.bytes / 1024,
            some(threads, "thread"),
            some(cpus, "CPU"),
            Sched::backend(),
            Plain::backend(),
        )?;
    }
    let mut outcomes = Vec::new();
    for kind in kinds {
        let bar = progress(kind, time);
        let outcome = match kind {
            Kind::Plain => run::<PercpuRef<Plain>>(&corpus, threads, time, &reports, &bar),
            Kind::Sched => run::<PercpuRef<Sched>>(&corpus, threads, time, &reports, &bar),
            Kind::Arc => run::<ArcCount>(&corpus, threads, time, &reports, &bar),
        };
        bar.finish_and_clear();
        outcomes.push((kind, outcome));
    }

    let mistakes: Vec<_> = outcomes
        .iter()
        .flat_map(|(kind, outcome)| outcome.mistakes().into_iter().map(|why| format!("{}: {why}", kind.name())))
        .collect();
    if options.json {
        let report = json!({
            "path": path.display().to_string(),
            "files": corpus.files(),
            "words": words,
            "threads": threads,
            "cpus": cpus,
            "balance": mistakes.is_empty(),
            "counts": table::to_json(&outcomes),
        });
        writeln!(out, "{report:#}")?;
    } else {
        table::print(&mut out, &outcomes, threads)?;
        writeln!(out)?;
        table::print_books(&mut out, &outcomes)?;
        writeln!(out)?;
    }
    if mistakes.is_empty() {
        if !options.json {
            let checked =
                "as many puts as gets, one release for each index, and nobody in after the confirm or the release";
            writeln!(out, "books balance: {checked}")?;
        }
        return Ok(true);
    }
    for why in mistakes {
        eprintln!("books do not balance: {why}");
    }
    Ok(false)
}

/// `1 file`, `2 files`.
fn some(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A bar on a terminal, nothing elsewhere.
fn progress(kind: Kind, time: Duration) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(time.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix:<6} [{bar:40}] {elapsed:>3} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(kind.name());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
