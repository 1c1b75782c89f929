//! What all this is measured on, and when.

use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::SystemTime;

/// The machine, the system and the compiler.
pub(crate) fn machine() -> Value {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let of_cpu = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned()
    };
    let memory = read("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
    let release = read("/proc/sys/kernel/osrelease");
    let virtual_machine = of_cpu("flags").split(' ').any(|flag| flag == "hypervisor");
    json!({
        "cpu": format!("{} (family {}, model {})", of_cpu("model name"), of_cpu("cpu family"), of_cpu("model\t")),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "virtual": virtual_machine,
        "memory_gib": (memory as f64 / 1024.0 / 1024.0).round(),
        "kernel": format!("Linux {}", release.split(['-', '\n']).next().unwrap_or_default()),
        "libc": ask("getconf", "GNU_LIBC_VERSION"),
        "rustc": ask("rustc", "--version"),
    })
}

/// The first line that a program of the system prints.
fn ask(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().map_or("unknown".into(), |line| line.trim().to_owned())
}

/// How many wanted to run in the last minute: on a quiet machine, at most as many as are measured.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Year, month and day, in UTC.
pub(crate) fn today() -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    date(since_1970.as_secs())
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
