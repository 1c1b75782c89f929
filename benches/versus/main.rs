//! Ours against the rivals, as ratios within one run, each with its goal.
//!
//! ```text
//! cargo bench --bench versus                            # every group, and target/versus.json
//! cargo bench --bench versus -- get_put --json out.json
//! ```
//!
//! `cargo run --release --example report` makes the tables and charts of the docs out of the file.
//!
//! The backend of `Sched` is chosen once for a process, so what has to run without restartable sequences, and what needs
//! a clean heap, runs in a child process of its own, with its rivals.

mod c_object;
mod case;
mod cell;
mod gate;
mod get_put;
mod harness;
mod history;
mod item;
mod kill;
mod machine;
mod page_pool;
mod page_pool_rows;
mod read_section;
mod ring;
mod ring_rows;
mod row;
mod scale;
mod switches;
mod threads;
mod urcu;
mod weak;

use clap::{Parser, ValueEnum};
use percpu_ref::rcu::{Flavor, Sched};
use row::Row;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Ours against the rivals, as ratios within one run, each with its goal.
#[derive(Parser)]
struct Options {
    /// What to measure [default: everything]
    #[arg(value_enum)]
    groups: Vec<Group>,
    /// Write the rows, and what they were measured on, to this file
    #[arg(long, value_name = "FILE", default_value = "target/versus.json")]
    json: PathBuf,
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
    /// What the kernel's history claims for its changes, old against new
    History,
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
    /// Going through a gate, and keeping everybody out
    Gate,
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
            Self::ReadSection | Self::GetPut | Self::Weak | Self::Cell | Self::Gate => {
                &[(Part::Membarrier, "membarrier")]
            }
            Self::Kill | Self::Ring => &[],
            Self::Scale => {
                &[(Part::Refs, ""), (Part::Threads, ""), (Part::Threads, "membarrier"), (Part::ThreadsPlain, "")]
            }
            Self::History => &[],
            Self::PagePool => &[(Part::Jemalloc, ""), (Part::Mimalloc, "")],
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What its help says.
    fn title(self) -> String {
        self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    fn run(self, part: Part) -> Vec<Row> {
        match self {
            Self::History => history::run(),
            Self::ReadSection => read_section::run(part),
            Self::GetPut => get_put::run(part),
            Self::Weak => weak::run(part),
            Self::Cell => cell::run(part),
            Self::Kill => kill::run(),
            Self::Scale => scale::run(part),
            Self::Ring => ring_rows::run(),
            Self::Gate => gate::run(part),
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
    let machine = machine::machine();
    let cpu = format!("{} x {}", machine["cpus"], machine["cpu"].as_str().unwrap_or_default());
    println!("{cpu}, {}, Sched on {}", machine["kernel"].as_str().unwrap_or_default(), backend());
    let (date, load, begin) = (machine::today(), machine::load(), Instant::now());
    let (mut all, mut titles) = (serde_json::Map::new(), serde_json::Map::new());
    for &group in groups {
        println!("\n== {} ==", group.name());
        let mut rows = group.run(Part::Whole);
        for &(part, backend) in group.children() {
            rows.extend(in_child(group, part, backend)?);
        }
        row::print(&rows);
        all.insert(group.name(), rows.iter().map(Row::to_json).collect());
        titles.insert(group.name(), group.title().into());
    }
    let names: String = options.groups.iter().map(|group| format!(" {}", group.name())).collect();
    let separator = if names.is_empty() { "" } else { " --" };
    let report = json!({
        "command": format!("cargo bench --bench versus{separator}{names}"),
        "date": date,
        "seconds": begin.elapsed().as_secs(),
        "load": { "before": load, "after": machine::load() },
        "machine": machine,
        "backend": backend(),
        "titles": titles,
        "groups": all,
    });
    let file = &options.json;
    let write = || {
        file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(file, format!("{report:#}\n"))
    };
    write().map_err(|error| format!("{}: {error}", file.display()))?;
    println!("written to {}, after {} s", file.display(), report["seconds"]);
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
