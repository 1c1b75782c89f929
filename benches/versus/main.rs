//! Ours against the rivals, as ratios within one run, each with its goal.
//!
//! ```text
//! cargo bench --bench versus                            # every group
//! cargo bench --bench versus -- get_put --json out.json
//! ```
//!
//! The backend of `Sched` is chosen once for a process, so what has to run without restartable sequences, and what needs
//! a clean heap, runs in a child process of its own, with its rivals.

mod cell;
mod get_put;
mod harness;
mod kill;
mod page_pool;
mod page_pool_rows;
mod read_section;
mod ring;
mod ring_rows;
mod row;
mod scale;
mod urcu;
mod weak;

use clap::{Parser, ValueEnum};
use percpu_ref::rcu::{Flavor, Sched};
use row::Row;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::SystemTime;

/// Ours against the rivals, as ratios within one run, each with its goal.
#[derive(Parser)]
struct Options {
    /// What to measure [default: everything]
    #[arg(value_enum)]
    groups: Vec<Group>,
    /// Write the rows, and what they were measured on, to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Which part of a group to measure in this process
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Cargo passes it to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Group {
    /// Read-side critical sections, and the microbenchmark of 2013
    ReadSection,
    /// Taking and dropping a reference
    GetPut,
    /// Coming back to an object that may be gone
    Weak,
    /// Reading a value that is replaced
    Cell,
    /// Grace periods and teardown
    Kill,
    /// Memory, and threads that come and go
    Scale,
    /// Handing pointers from thread to thread
    Ring,
    /// Allocating, touching and freeing pages
    PagePool,
}

/// What one process measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// With the best backend that the system has.
    Whole,
    /// Without restartable sequences.
    Membarrier,
    /// Memory of many refs.
    Refs,
    /// Memory of many threads, one after another.
    Threads,
    /// The same for the other flavour.
    ThreadsPlain,
    /// With another allocator in place of the C library's.
    Jemalloc,
    /// The same.
    Mimalloc,
}

impl Part {
    /// What `malloc` has to be, if that matters.
    fn allocator(self) -> Option<&'static str> {
        match self {
            Self::Jemalloc => Some("jemalloc"),
            Self::Mimalloc => Some("mimalloc"),
            _ => None,
        }
    }

    /// The library that makes it so.
    fn preload(self) -> Option<&'static str> {
        match self {
            Self::Jemalloc => Some("libjemalloc.so.2"),
            Self::Mimalloc => Some("libmimalloc.so.2"),
            _ => None,
        }
    }
}

impl Group {
    /// The parts that run in children, and the backend each asks for.
    fn children(self) -> &'static [(Part, &'static str)] {
        match self {
            Self::ReadSection | Self::GetPut | Self::Weak | Self::Cell => &[(Part::Membarrier, "membarrier")],
            Self::Kill | Self::Ring => &[],
            Self::Scale => {
                &[(Part::Refs, ""), (Part::Threads, ""), (Part::Threads, "membarrier"), (Part::ThreadsPlain, "")]
            }
            Self::PagePool => &[(Part::Jemalloc, ""), (Part::Mimalloc, "")],
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn run(self, part: Part) -> Vec<Row> {
        match self {
            Self::ReadSection => read_section::run(part),
            Self::GetPut => get_put::run(part),
            Self::Weak => weak::run(part),
            Self::Cell => cell::run(part),
            Self::Kill => kill::run(),
            Self::Scale => scale::run(part),
            Self::Ring => ring_rows::run(),
            Self::PagePool => page_pool_rows::run(part),
        }
    }
}

/// What `Sched` uses in this process.
fn backend() -> String {
    format!("{:?}", Sched::backend())
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let (Some(part), [group]) = (options.part, options.groups.as_slice()) {
        let rows: Value = group.run(part).iter().map(Row::to_json).collect();
        println!("{rows}");
        return ExitCode::SUCCESS;
    }
    match compare(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), String> {
    let groups = if options.groups.is_empty() { Group::value_variants() } else { options.groups.as_slice() };
    let machine = machine();
    println!("{} x {}, {}, Sched on {}", machine["cpus"], machine["cpu"], machine["kernel"], backend());
    let mut all = serde_json::Map::new();
    for &group in groups {
        println!("\n== {} ==", group.name());
        let mut rows = group.run(Part::Whole);
        for &(part, backend) in group.children() {
            rows.extend(in_child(group, part, backend)?);
        }
        row::print(&rows);
        all.insert(group.name(), rows.iter().map(Row::to_json).collect());
    }
    if let Some(file) = &options.json {
        let report = json!({ "machine": machine, "backend": backend(), "groups": all });
        std::fs::write(file, format!("{report:#}\n")).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// Measures a part in a process of its own.
fn in_child(group: Group, part: Part, backend: &str) -> Result<Vec<Row>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    if !backend.is_empty() {
        command.env("PERCPU_REF_BACKEND", backend);
    }
    if let Some(library) = part.preload() {
        command.env("LD_PRELOAD", library);
    }
    let part = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let output = command
        .args([&group.name(), "--part", &part])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}, {part}: {error}", group.name()))?;
    if !output.status.success() {
        return Err(format!("{}, {part}: the child ended with {}", group.name(), output.status));
    }
    let rows: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    rows.as_array()
        .into_iter()
        .flatten()
        .map(|row| Row::from_json(row).ok_or("a child's row is broken".into()))
        .collect()
}

/// What all this was measured on.
fn machine() -> Value {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "cpu": model.unwrap_or("unknown"),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        "date": date(since_1970.as_secs()),
    })
}

/// Seconds since 1970 as year, month and day.
fn date(seconds: u64) -> String {
    // Days since 1 March of year 0, in eras of 400 years; after Howard Hinnant's `civil_from_days`.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}
