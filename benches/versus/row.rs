//! Rows: what was compared, what came out, and what the goal is.

use crate::harness::Figure;
use serde_json::{Value, json};

/// What a row should come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// For orientation only.
    None,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) work: String,
    /// The backend of `Sched` in the process that measured it.
    pub(crate) backend: String,
    pub(crate) unit: String,
    pub(crate) ours: Figure,
    /// Without a rival the goal is about the figure itself.
    pub(crate) rival: Option<Figure>,
    pub(crate) goal: Goal,
}

impl Row {
    /// What the goal is about: the ratio of the medians, or the median.
    fn value(&self) -> f64 {
        self.rival.as_ref().map_or(self.ours.median, |rival| self.ours.median / rival.median)
    }

    fn value_of_minima(&self) -> f64 {
        self.rival.as_ref().map_or(self.ours.min, |rival| self.ours.min / rival.min)
    }

    /// `None` where there is no goal.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.goal {
            Goal::AtMost(limit) => Some(self.value() <= limit),
            Goal::AtLeast(limit) => Some(self.value() >= limit),
            Goal::None => None,
        }
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let figure = |figure: &Figure| {
            let threads = threads(&figure.name);
            json!({ "name": figure.name, "threads": threads, "min": figure.min, "median": figure.median })
        };
        json!({
            "work": self.work,
            "backend": self.backend,
            "unit": self.unit,
            "ours": figure(&self.ours),
            "rival": self.rival.as_ref().map(figure),
            "value": self.value(),
            "value_of_minima": self.value_of_minima(),
            "goal": match self.goal {
                Goal::AtMost(limit) => json!({ "at_most": limit }),
                Goal::AtLeast(limit) => json!({ "at_least": limit }),
                Goal::None => Value::Null,
            },
            "met": self.is_met(),
        })
    }

    /// What [`to_json`](Self::to_json) wrote in another process.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(String::from);
        let figure = |value: &Value| {
            Some(Figure { name: text(&value["name"])?, min: value["min"].as_f64()?, median: value["median"].as_f64()? })
        };
        Some(Self {
            work: text(&value["work"])?,
            backend: text(&value["backend"])?,
            unit: text(&value["unit"])?,
            ours: figure(&value["ours"])?,
            rival: figure(&value["rival"]),
            goal: match &value["goal"] {
                Value::Null => Goal::None,
                goal => match (goal["at_most"].as_f64(), goal["at_least"].as_f64()) {
                    (Some(limit), _) => Goal::AtMost(limit),
                    (_, limit) => Goal::AtLeast(limit?),
                },
            },
        })
    }
}

/// The threads of a contender whose name ends in `, N threads`. `None`: one, or as the row's work says.
fn threads(name: &str) -> Option<usize> {
    name.strip_suffix(" threads")?.rsplit_once(", ")?.1.parse().ok()
}

/// Three digits that count.
fn short(number: f64) -> String {
    match number.abs() {
        ..10.0 => format!("{number:.2}"),
        10.0..1_000.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// Prints rows as one aligned table.
pub(crate) fn print(rows: &[Row]) {
    let head = ["work", "backend", "ours", "min", "median", "rival", "min", "median", "ratio", "of minima", "goal", ""];
    let mut lines = vec![head.map(String::from)];
    for row in rows {
        let with_unit = |number| format!("{} {}", short(number), row.unit);
        let rival = |f: &dyn Fn(&Figure) -> String| row.rival.as_ref().map_or("-".into(), f);
        let ratio = |number| if row.rival.is_some() { format!("{number:.3}") } else { "-".into() };
        lines.push([
            row.work.clone(),
            row.backend.clone(),
            row.ours.name.clone(),
            with_unit(row.ours.min),
            with_unit(row.ours.median),
            rival(&|rival| rival.name.clone()),
            rival(&|rival| with_unit(rival.min)),
            rival(&|rival| with_unit(rival.median)),
            ratio(row.value()),
            ratio(row.value_of_minima()),
            match row.goal {
                Goal::AtMost(limit) => format!("<= {limit}"),
                Goal::AtLeast(limit) => format!(">= {limit}"),
                Goal::None => "-".into(),
            },
            row.verdict().into(),
        ]);
    }
    let widths: Vec<_> =
        (0..head.len()).map(|i| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0)).collect();
    for (i, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 | 1 | 2 | 5 | 11 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        if i == 0 {
            println!("{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
        }
    }
    let with_goal = rows.iter().filter_map(Row::is_met);
    let (met, all) = with_goal.fold((0, 0), |(met, all), is_met| (met + usize::from(is_met), all + 1));
    println!("\n{met} of {all} goals met (the ratio of the medians counts)\n");
}
