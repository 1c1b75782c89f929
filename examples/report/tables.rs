//! The views: what stands between the markers of a page.

use crate::run::{Goal, Row, Run};
use std::collections::BTreeSet;

/// A row of the README's table: what is done, and which comparison shows it.
struct Summary {
    what: &'static str,
    group: &'static str,
    backend: &'static str,
    /// Which work, where the two are compared in several.
    work: Option<&'static str>,
    ours: (&'static str, &'static str),
    rival: (&'static str, &'static str),
}

/// The names in the second place are for readers, the first ones are those of the benchmark.
const SUMMARY: &[Summary] = &[
    Summary {
        what: "take and drop a reference, one thread",
        group: "get_put",
        backend: "Rseq",
        work: None,
        ours: ("Sched", "`get`, `put`"),
        rival: ("Arc", "`Arc` clone and drop"),
    },
    Summary {
        what: "the same, two threads on one object",
        group: "get_put",
        backend: "Rseq",
        work: None,
        ours: ("Sched, 2 threads", "`get`, `put`"),
        rival: ("Arc, 2 threads", "`Arc` clone and drop"),
    },
    Summary {
        what: "the same, without restartable sequences",
        group: "get_put",
        backend: "Membarrier",
        work: None,
        ours: ("Sched, 2 threads", "`get`, `put`"),
        rival: ("Arc, 2 threads", "`Arc` clone and drop"),
    },
    Summary {
        what: "enter and leave a guarded place, two threads",
        group: "get_put",
        backend: "Rseq",
        work: None,
        ours: ("enter, 2 threads", "`enter`"),
        rival: ("TaskTracker, 2 threads", "tokio-util `TaskTracker::token`"),
    },
    Summary {
        what: "come back to an object that may be gone, two threads",
        group: "weak",
        backend: "Rseq",
        work: None,
        ours: ("upgrade, 2 threads", "`Weak::upgrade`"),
        rival: ("std upgrade, 2 threads", "`std::sync::Weak::upgrade`"),
    },
    Summary {
        what: "keep the configuration of now, one thread",
        group: "cell",
        backend: "Rseq",
        work: None,
        ours: ("load", "`RcuCell::load`"),
        rival: ("arc-swap load_full", "arc-swap `load_full`"),
    },
    Summary {
        what: "open and close a read-side section",
        group: "read_section",
        backend: "Rseq",
        work: None,
        ours: ("Sched", "`Sched::read_lock`"),
        rival: ("crossbeam pin", "`crossbeam_epoch::pin`"),
    },
    Summary {
        what: "kill, and know that nobody new is in",
        group: "kill",
        backend: "Rseq",
        work: None,
        ours: ("kill_sync", "`kill_sync`"),
        rival: ("liburcu-memb synchronize_rcu", "liburcu `synchronize_rcu`"),
    },
    Summary {
        what: "hand a pointer from thread to thread",
        group: "ring",
        backend: "-",
        work: Some("two threads, size 1024"),
        ours: ("spsc", "`ptr_ring::spsc`, two threads"),
        rival: ("rtrb", "rtrb"),
    },
];

/// What a change in the kernel's history was said to gain, and the comparison that shows it here.
struct Source {
    change: &'static str,
    says: &'static str,
    group: &'static str,
    /// How its work begins.
    work: &'static str,
    /// Set where the row has the old way as ours and the new one as its rival: the name of the old one.
    old_is: Option<&'static str>,
}

const SOURCES: &[Source] = &[
    Source {
        change: "2013, percpu_ref: sections of RCU-sched instead of RCU",
        says: "the loop of get, copy, put, copy is 15 % slower with the old ones",
        group: "read_section",
        work: "get, copy, put, copy (2013)",
        old_is: Some("copies, Plain"),
    },
    Source {
        change: "2017, ptr_ring: clear in batches",
        says: "1.84 to 2.00 million packets a second: +9 %",
        group: "history",
        work: "2017, clear in batches",
        old_is: None,
    },
    Source {
        change: "2017, and consume in batches",
        says: "1.84 to 2.30 million packets a second: +25 %",
        group: "history",
        work: "2017, and consume",
        old_is: None,
    },
    Source {
        change: "2021, ptr_ring: move the head before clearing",
        says: "6.2 % less time in one thread, 7.6 % less in two",
        group: "history",
        work: "2021, move the head first",
        old_is: None,
    },
    Source {
        change: "here, ptr_ring: the credit rule after the kernel's",
        says: "-",
        group: "history",
        work: "the credit rule",
        old_is: None,
    },
    Source { change: "nothing: how much noise is", says: "-", group: "history", work: "control", old_is: None },
];

/// What stands in the place of a view. `named` are the views that have a place of their own somewhere.
pub(crate) fn view(run: &Run, name: &str, named: &BTreeSet<String>) -> Result<String, String> {
    match name {
        "machine" => Ok(machine(run)),
        "goals" => Ok(goals(run)),
        "summary" => summary(run),
        "sources" => sources(run),
        "others" => Ok(others(run, named)),
        _ => match name.split_once('/') {
            Some((group, "rivals")) => run.group(group).map(rivals),
            _ => run.group(name).map(rows),
        },
    }
}

/// Three digits that count.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        ..10.0 => format!("{number:.2}"),
        10.0..100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

fn lines(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line =
        |cells: &mut dyn Iterator<Item = &str>| format!("| {} |\n", cells.map(as_text).collect::<Vec<_>>().join(" | "));
    let mut text = line(&mut head.iter().copied());
    text.push_str(&format!("|{}\n", "---|".repeat(head.len())));
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// Types with parameters are no tags.
fn as_text(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '<' && rest.peek().is_some_and(|next| next.is_alphabetic()) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// What it was measured on.
fn machine(run: &Run) -> String {
    let machine = &run.machine;
    let load = |load: Option<f64>| load.map_or("unknown".into(), |load| format!("{load:.1}"));
    format!(
        "- Machine: {}{} x {}, {} GiB of memory\n- System: {}, {}, `Sched` on `{}`\n- Compiler: {}, with full link-time optimisation\n\
         - Run: `{}` on {}, {} s; load average {} before and {} after",
        if machine.is_virtual { "virtual, " } else { "" },
        machine.cpus,
        machine.cpu,
        machine.memory_gib,
        machine.kernel,
        machine.libc,
        run.backend,
        machine.rustc,
        run.command,
        run.date,
        run.seconds,
        load(run.load.before),
        load(run.load.after),
    )
}

fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::AtMost(limit) => format!("<= {limit}"),
        Goal::AtLeast(limit) => format!(">= {limit}"),
    }
}

/// The goal and whether it is met.
fn verdict(row: &Row) -> String {
    match (row.goal, row.met) {
        (Some(goal), Some(true)) => format!("{} met", goal_text(goal)),
        (Some(goal), _) => format!("{} **missed**", goal_text(goal)),
        (None, _) => "-".into(),
    }
}

/// Every row of a group.
fn rows(rows: &[Row]) -> String {
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    let one_unit = rows.iter().all(|row| row.unit == unit);
    let number = |row: &Row, number| if one_unit { short(number) } else { format!("{} {}", short(number), row.unit) };
    let in_unit = |what: &str| if one_unit { format!("{what}, {unit}") } else { what.to_owned() };
    let (min, median) = (in_unit("min"), in_unit("median"));
    let head =
        ["work", "backend", "ours", &min, &median, "rival", &min, &median, "ratio of medians (of minima)", "goal"];
    let line = |row: &Row| {
        let (rival, ratio) = match &row.rival {
            Some(rival) => (
                [rival.name.clone(), number(row, rival.min), number(row, rival.median)],
                format!("{:.2} ({:.2})", row.value, row.value_of_minima),
            ),
            None => (["-"; 3].map(String::from), "-".into()),
        };
        let ours = [row.work.clone(), row.backend.clone(), row.ours.name.clone()];
        let figures = [number(row, row.ours.min), number(row, row.ours.median)];
        ours.into_iter().chain(figures).chain(rival).chain([ratio, verdict(row)]).collect()
    };
    lines(&head, rows.iter().map(line))
}

/// A group as ratios: a table for each of our contenders, with a line for each work and a column for each rival.
fn rivals(rows: &[Row]) -> String {
    let ours = distinct(rows.iter().map(|row| row.ours.name.as_str()));
    let tables = ours.into_iter().map(|ours| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.ours.name == ours).collect();
        let works = distinct(rows.iter().map(|row| row.work.as_str()));
        let columns = distinct(rows.iter().filter_map(|row| row.rival.as_ref()).map(|rival| rival.name.as_str()));
        let cell = |work: &str, column: &str| {
            let is_it = |row: &&&Row| row.work == work && row.rival.as_ref().is_some_and(|rival| rival.name == column);
            rows.iter().find(is_it).map_or(String::new(), |row| {
                let goal = row.goal.map_or(String::new(), |_| format!(", {}", verdict(row)));
                format!("{:.2} ({:.2}){goal}", row.value, row.value_of_minima)
            })
        };
        let ours = format!("`{ours}` against");
        let head: Vec<&str> = [ours.as_str()].into_iter().chain(columns.iter().copied()).collect();
        let line = |work: &&str| {
            let cells = columns.iter().map(|column| cell(work, column));
            [(*work).to_owned()].into_iter().chain(cells).collect()
        };
        lines(&head, works.iter().map(line))
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Each of them once, in the order of their first occurrence.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut once = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}

/// How many goals each group meets, and which it misses.
fn goals(run: &Run) -> String {
    let line = |(name, rows): (&String, &Vec<Row>)| {
        let with_goal: Vec<&Row> = rows.iter().filter(|row| row.met.is_some()).collect();
        let one_work = with_goal.iter().all(|row| row.work == with_goal[0].work);
        let missed: Vec<String> = with_goal
            .iter()
            .filter(|row| row.met == Some(false))
            .map(|row| {
                let rival = row.rival.as_ref().map_or(String::new(), |rival| format!(" against {}", rival.name));
                let backend = if row.backend == run.backend || row.backend == "-" {
                    String::new()
                } else {
                    format!(" on {}", row.backend)
                };
                let work = if one_work { String::new() } else { format!("{}: ", row.work) };
                let goal = row.goal.map_or("-".into(), goal_text);
                format!("{work}{}{rival}{backend} ({}, goal {goal})", row.ours.name, short(row.value))
            })
            .collect();
        let missed = if missed.is_empty() { "-".into() } else { missed.join("; ") };
        let met = with_goal.iter().filter(|row| row.met == Some(true)).count();
        vec![format!("`{name}`"), with_goal.len().to_string(), met.to_string(), missed]
    };
    lines(
        &["group", "goals", "met", "missed"],
        run.groups.iter().filter(|(_, rows)| rows.iter().any(|row| row.met.is_some())).map(line),
    )
}

/// The README's table.
fn summary(run: &Run) -> Result<String, String> {
    let line = |summary: &Summary| {
        let row = run.row(summary.group, summary.backend, summary.work, summary.ours.0, summary.rival.0)?;
        let rival = row.rival.as_ref().ok_or("a row of the summary has no rival")?;
        let figure = |name: &str, median: f64| match (row.unit.as_str(), median) {
            ("ns", 1000.0..) => format!("{name}: {} us", short(median / 1000.0)),
            (unit, median) => format!("{name}: {} {unit}", short(median)),
        };
        Ok(vec![
            summary.what.into(),
            figure(summary.ours.1, row.ours.median),
            figure(summary.rival.1, rival.median),
            format!("{:.2}", row.value),
        ])
    };
    let rows = SUMMARY.iter().map(line).collect::<Result<Vec<_>, String>>()?;
    Ok(lines(&["", "ours", "usual", "ratio"], rows))
}

/// What the sources claim, beside what is seen here.
fn sources(run: &Run) -> Result<String, String> {
    let mut table = Vec::new();
    for source in SOURCES {
        let is_it =
            |row: &&Row| row.work.starts_with(source.work) && source.old_is.is_none_or(|old| row.ours.name == old);
        let rows = run.group(source.group)?.iter().filter(is_it);
        let before = table.len();
        for row in rows {
            let rival = row.rival.as_ref().ok_or_else(|| format!("{} has no rival", row.work))?;
            let (new, old) = if source.old_is.is_some() { (rival, &row.ours) } else { (&row.ours, rival) };
            let gain = |new: f64, old: f64| format!("{:+.0} %", (old / new - 1.0) * 100.0);
            // Said once, not in every row of the change.
            let first_only = |text: &str| if table.len() == before { text.to_owned() } else { String::new() };
            let case = row.work.split_once(": ").map_or("", |(_, case)| case);
            let backend = if row.backend == "-" { String::new() } else { format!("`{}`", row.backend) };
            table.push(vec![
                first_only(source.change),
                first_only(source.says),
                format!("{case}{backend}"),
                format!("{} ({})", short(old.median), short(old.min)),
                format!("{} ({})", short(new.median), short(new.min)),
                format!("{} ({})", gain(new.median, old.median), gain(new.min, old.min)),
            ]);
        }
        if table.len() == before {
            return Err(format!("there is no work `{}` in group {}", source.work, source.group));
        }
    }
    let head = ["change", "the source says", "here", "old, ns", "new, ns", "throughput"];
    Ok(lines(&head, table))
}

/// Groups that no page has a place for, so that nothing measured is left out.
fn others(run: &Run, named: &BTreeSet<String>) -> String {
    let has_a_place = |name: &str| named.contains(name) || named.contains(&format!("{name}/rivals"));
    let other = |(name, group): (&String, &Vec<Row>)| {
        let title = run.titles.get(name).map_or(name.as_str(), String::as_str);
        format!("## {title} (`{name}`)\n\n{}", rows(group))
    };
    let others: Vec<String> = run.groups.iter().filter(|(name, _)| !has_a_place(name)).map(other).collect();
    others.join("\n")
}
