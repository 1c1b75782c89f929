//! Finds the holder of a leaked reference.
//!
//!     cargo run --release --features track --example leak
//!
//! Some workers share a table. One of them keeps its handle in a place where nobody looks for it, so the table cannot be
//! torn down. Who waits for it learns who it is: the exit code tells whether the right line was named.

use percpu_ref::{HolderKind, Owner, Shared};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

struct Table {
    rows: Vec<u64>,
}

type Job = fn(&Shared<Table>) -> u64;

/// The mistake: a cache that outlives the workers.
static RECENTLY_AUDITED: Mutex<Vec<Shared<Table>>> = Mutex::new(Vec::new());

/// Where the handle in the cache was made, for the check at the end.
static GUILTY_LINE: AtomicU32 = AtomicU32::new(0);

fn index(table: &Shared<Table>) -> u64 {
    let own = table.clone();
    own.rows.iter().sum()
}

fn audit(table: &Shared<Table>) -> u64 {
    GUILTY_LINE.store(line!() + 1, Ordering::Relaxed);
    RECENTLY_AUDITED.lock().unwrap().push(table.clone());
    table.rows.len() as u64
}

fn export(table: &Shared<Table>) -> u64 {
    let copies = [table.clone(), table.clone()];
    copies.iter().map(|table| table.rows[0]).sum()
}

fn main() -> ExitCode {
    let table = Owner::with_name(Table { rows: (1..=1000).collect() }, "table");
    let jobs: [(&str, Job); 3] = [("index", index), ("audit", audit), ("export", export)];
    let workers = jobs.map(|(name, job)| {
        let table = Owner::share(&table);
        let work = move || println!("{name}: {}", job(&table));
        thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread")
    });
    for worker in workers {
        worker.join().expect("the worker ends");
    }

    let drain = match Owner::shutdown(table).wait_timeout(Duration::from_millis(200)) {
        Ok(_) => {
            eprintln!("nobody holds the table: the leak is not there");
            return ExitCode::FAILURE;
        }
        Err(drain) => drain,
    };
    let out = drain.outstanding();
    println!("the table cannot be torn down:\n{out}");

    let [holding] = out.holders() else {
        eprintln!("there should be one holder");
        return ExitCode::FAILURE;
    };
    let guilty = holding
        .place()
        .is_some_and(|place| place.file() == file!() && place.line() == GUILTY_LINE.load(Ordering::Relaxed));
    if !guilty || holding.count() != 1 || holding.kind() != HolderKind::Shared || holding.thread_name() != Some("audit")
    {
        eprintln!("the wrong one is named");
        return ExitCode::FAILURE;
    }

    RECENTLY_AUDITED.lock().unwrap().clear();
    println!("after the cache was emptied it is back, with {} rows", drain.wait().rows.len());
    ExitCode::SUCCESS
}
