//! Makes the tables and charts of the docs out of what `cargo bench --bench versus` measured.
//!
//! ```text
//! cargo run --release --example report                       # target/versus.json into docs/benchmarks.json, tables and charts
//! cargo run --release --example report -- one.json two.json  # groups of the later file replace those of the earlier one
//! cargo run --release --example report -- --check            # whether README and docs say what docs/benchmarks.json says
//! ```
//!
//! A table stands between `<!-- versus:VIEW -->` and `<!-- /versus -->` in README.md or a page under docs. What is around it is
//! written by hand and stays. A view is the name of a group of the benchmark, for all of its rows, or one of those in
//! `tables.rs`.

mod charts;
mod pages;
mod run;
mod tables;

use clap::Parser;
use run::Run;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes the tables and charts of the docs out of what `cargo bench --bench versus` measured.
#[derive(Parser)]
struct Options {
    /// What the benchmark wrote [default: target/versus.json]
    files: Vec<PathBuf>,
    /// Change nothing; fail if a figure in README or docs is not the one in docs/benchmarks.json
    #[arg(long, conflicts_with = "files")]
    check: bool,
    /// Where README.md and docs are
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    root: PathBuf,
}

/// What the docs are made of, kept beside them.
const KEPT: &str = "docs/benchmarks.json";

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.check { check(&options.root) } else { generate(&options) };
    match result {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that is made of a run, by path under the root.
fn made_of(run: &Run, root: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files = pages::fill(run, root)?;
    files.extend(charts::draw(run)?);
    Ok(files)
}

fn generate(options: &Options) -> Result<String, String> {
    let from_bench = [PathBuf::from("target/versus.json")];
    let files = if options.files.is_empty() { from_bench.as_slice() } else { options.files.as_slice() };
    let runs = files.iter().map(|file| Run::read(file)).collect::<Result<Vec<_>, _>>()?;
    let kept = options.root.join(KEPT);
    write(&kept, &Run::merge(runs)?.to_json())?;
    // From what was kept, so that a check finds the same digits.
    let made = made_of(&Run::read(&kept)?, &options.root)?;
    for (path, text) in &made {
        write(&options.root.join(path), text)?;
    }
    Ok(format!(
        "{KEPT}, and of it: {}",
        made.keys().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    ))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let create = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    create().map_err(|error| format!("{}: {error}", path.display()))
}

/// What the first difference is, if there is one.
fn check(root: &Path) -> Result<String, String> {
    let made = made_of(&Run::read(&root.join(KEPT))?, root)?;
    let mut differences = Vec::new();
    for (path, expected) in &made {
        let found = fs::read_to_string(root.join(path)).map_err(|error| format!("{}: {error}", path.display()))?;
        if let Some(difference) = first_difference(&found, expected) {
            differences.push(format!("{}, {difference}", path.display()));
        }
    }
    if differences.is_empty() {
        return Ok(format!("{} files say what {KEPT} says", made.len()));
    }
    Err(format!(
        "not what {KEPT} says:\n{}\nmake them anew with: cargo run --release --example report -- {KEPT}",
        differences.join("\n")
    ))
}

fn first_difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let (mut found, mut expected) = (found.lines(), expected.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (found.next(), expected.next()) {
            (None, None) => return Some("at the end".into()),
            (found, expected) if found == expected => {}
            (found, expected) => {
                let line = |line: Option<&str>| line.unwrap_or("(nothing)").to_owned();
                return Some(format!("line {number}:\n  has     {}\n  must be {}", line(found), line(expected)));
            }
        }
    }
}
