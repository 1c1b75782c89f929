//! What the benchmark wrote.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One run, or several on one machine put together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) seconds: u64,
    pub(crate) load: Load,
    pub(crate) machine: Machine,
    /// Of `Sched`, in the main process.
    pub(crate) backend: String,
    /// What the groups are about, by name.
    pub(crate) titles: BTreeMap<String, String>,
    pub(crate) groups: BTreeMap<String, Vec<Row>>,
}

/// How many wanted a CPU in the minute before and the last one of the run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Load {
    pub(crate) before: Option<f64>,
    pub(crate) after: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    #[serde(rename = "virtual")]
    pub(crate) is_virtual: bool,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) libc: String,
    pub(crate) rustc: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) backend: String,
    pub(crate) unit: String,
    pub(crate) ours: Figure,
    pub(crate) rival: Option<Figure>,
    /// The ratio of the medians, or our median where there is no rival.
    pub(crate) value: f64,
    pub(crate) value_of_minima: f64,
    pub(crate) goal: Option<Goal>,
    pub(crate) met: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// `None`: one, or as the work says.
    pub(crate) threads: Option<usize>,
    pub(crate) min: f64,
    pub(crate) median: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Run {
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    pub(crate) fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("all keys are strings");
        format!("{text}\n")
    }

    /// Puts runs on one machine together. A group of a later one replaces that of an earlier one.
    pub(crate) fn merge(runs: Vec<Self>) -> Result<Self, String> {
        let mut runs = runs.into_iter();
        let mut all = runs.next().ok_or("no run")?;
        for run in runs {
            if (&run.machine, &run.backend) != (&all.machine, &all.backend) {
                return Err(format!("runs of two machines: {:?} and {:?}", all.machine, run.machine));
            }
            if all.command != run.command {
                all.command = format!("{}; {}", all.command, run.command);
            }
            all.date = run.date;
            all.seconds += run.seconds;
            all.load.after = run.load.after;
            all.titles.extend(run.titles);
            all.groups.extend(run.groups);
        }
        Ok(all)
    }

    pub(crate) fn group(&self, name: &str) -> Result<&[Row], String> {
        self.groups.get(name).map(Vec::as_slice).ok_or_else(|| format!("there is no group {name} in the JSON"))
    }

    /// The row of a comparison; `backend` may be `-` for those that have none.
    pub(crate) fn row(
        &self,
        group: &str,
        backend: &str,
        work: Option<&str>,
        ours: &str,
        rival: &str,
    ) -> Result<&Row, String> {
        let is_it = |row: &&Row| {
            row.backend == backend
                && work.is_none_or(|work| row.work == work)
                && row.ours.name == ours
                && row.rival.as_ref().is_none_or(|figure| figure.name == rival)
        };
        let found = self.group(group)?.iter().find(is_it);
        found.ok_or_else(|| format!("there is no row of {ours} against {rival} on {backend} in group {group}"))
    }

    /// The rows of one work, on a backend.
    pub(crate) fn work(&self, group: &str, backend: &str, work: &str) -> Result<Vec<&Row>, String> {
        let rows: Vec<_> = self.group(group)?.iter().filter(|row| row.work == work && row.backend == backend).collect();
        if rows.is_empty() { Err(format!("there is no work `{work}` on {backend} in group {group}")) } else { Ok(rows) }
    }
}
