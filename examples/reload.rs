//! A configuration file that is reloaded while every thread reads it.
//!
//! ```text
//! cargo run --release --example reload -- --file app.conf --seconds 5 --threads 4
//! ```
//!
//! The threads look at the configuration for each piece of work, in an `RcuCell`: a look costs them nothing that they
//! share. The main thread watches the file and replaces the configuration as a whole, so nobody ever sees half of a new
//! one. A file that does not parse changes nothing. An old configuration is closed when its last reader is done with it.
//!
//! Without `--file` the program writes one of its own and changes it all the time, to show that it works.

use clap::Parser;
use percpu_ref::RcuCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Reload a configuration file while every thread reads it.
#[derive(Parser)]
struct Options {
    /// Lines of `key = value`; it has to say `version` and `checksum`, the sum of all other numbers
    #[arg(long)]
    file: Option<PathBuf>,
    /// How long to run
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Threads that read
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// What is in the file, checked.
#[derive(Debug)]
struct Config {
    version: u64,
    values: BTreeMap<String, u64>,
}

impl Config {
    fn parse(text: &str) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("`{line}` is not `key = value`"))?;
            let value = value.trim().parse().map_err(|error| format!("`{line}`: {error}"))?;
            values.insert(key.trim().to_owned(), value);
        }
        let version = values.remove("version").ok_or("there is no version")?;
        let config = Self { version, values };
        if config.is_whole() { Ok(config) } else { Err("the checksum is wrong".into()) }
    }

    /// Whether the checksum is that of the other values: it would not be in a mixture of two files.
    fn is_whole(&self) -> bool {
        let sum: u64 = self.values.iter().filter(|(key, _)| *key != "checksum").map(|(_, value)| value).sum();
        self.values.get("checksum") == Some(&(sum + self.version))
    }
}

fn load(file: &Path) -> Result<Config, String> {
    Config::parse(&fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?)
}

/// Writes a configuration beside the file and moves it there, so that no reader of the file finds half of it.
fn write(file: &Path, version: u64) -> std::io::Result<()> {
    let workers = version % 7;
    let text =
        format!("version = {version}\nworkers = {workers}\nlimit = 100\nchecksum = {}\n", version + workers + 100);
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

fn modified(file: &Path) -> Option<(SystemTime, u64)> {
    let data = fs::metadata(file).ok()?;
    Some((data.modified().ok()?, std::os::unix::fs::MetadataExt::ino(&data)))
}

fn main() -> Result<(), String> {
    let options = Options::parse();
    let demo = options.file.is_none();
    let own = std::env::temp_dir().join(format!("reload-{}.conf", std::process::id()));
    let file = options.file.unwrap_or_else(|| own.clone());
    if demo {
        write(&file, 1).map_err(|error| error.to_string())?;
    }

    let config = RcuCell::new(load(&file)?);
    let (stop, looks, reloads) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(options.seconds);
    thread::scope(|s| {
        for _ in 0..options.threads {
            s.spawn(|| {
                let (mut here, mut last) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    // A look: nothing is taken, so nothing has to be dropped.
                    let version = config.read(|config| {
                        assert!(config.is_whole());
                        config.version
                    });
                    assert!(version >= last, "a thread never goes back to an older configuration");
                    last = version;
                    here += 1;
                    if here % 1000 == 0 {
                        // Work that takes long keeps the configuration it began with.
                        let kept = config.load();
                        thread::sleep(Duration::from_micros(50));
                        assert!(kept.is_whole());
                    }
                }
                looks.fetch_add(here, Ordering::Relaxed);
            });
        }
        let mut seen = modified(&file);
        let mut version = 1;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(if demo { 1 } else { 200 }));
            if demo {
                version += 1;
                write(&file, version).expect("the temporary directory can be written to");
            }
            let now = modified(&file);
            if now != seen {
                seen = now;
                match load(&file) {
                    Ok(new) => {
                        config.store(new);
                        reloads.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(why) => eprintln!("keeping the old configuration: {why}"),
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    if demo {
        let _ = fs::remove_file(own);
    }
    let last = config.into_inner().wait();
    println!(
        "{} looks at {} configurations on {} threads; the last was version {}",
        looks.into_inner(),
        reloads.into_inner() + 1,
        options.threads,
        last.version
    );
    Ok(())
}
