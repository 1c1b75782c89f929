//! Charts, drawn with plotters as SVG, for light and for dark pages.
//!
//! plotters writes each colour into the element that has it. So everything is drawn in the colours of a light page, and a
//! style in front exchanges each of them where the reader prefers dark ones. The background is part of the picture, so
//! that it can be read on whatever page it lands on.

use crate::run::{Figure, Run};
use crate::tables::short;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A colour on a light page, and what takes its place on a dark one.
struct Ink {
    light: RGBColor,
    dark: &'static str,
}

const PAPER: Ink = Ink { light: RGBColor(255, 255, 255), dark: "#0D1117" };
const TEXT: Ink = Ink { light: RGBColor(31, 35, 40), dark: "#E6EDF3" };
const FAINT: Ink = Ink { light: RGBColor(89, 99, 110), dark: "#9198A1" };
const GRID: Ink = Ink { light: RGBColor(209, 217, 224), dark: "#30363D" };
const BLUE: Ink = Ink { light: RGBColor(9, 105, 218), dark: "#4493F8" };
const SKY: Ink = Ink { light: RGBColor(84, 174, 255), dark: "#79C0FF" };
const PURPLE: Ink = Ink { light: RGBColor(130, 80, 223), dark: "#AB7DF8" };
const RED: Ink = Ink { light: RGBColor(207, 34, 46), dark: "#F85149" };
const GREY: Ink = Ink { light: RGBColor(140, 149, 159), dark: "#6E7681" };
const INKS: [&Ink; 9] = [&PAPER, &TEXT, &FAINT, &GRID, &BLUE, &SKY, &PURPLE, &RED, &GREY];

const WIDTH: i32 = 760;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), String>;

/// Every chart, by where it goes.
pub(crate) fn draw(run: &Run) -> Result<BTreeMap<PathBuf, String>, String> {
    let wait = Panel {
        title: "A wait for everybody, one busy thread beside it",
        group: "kill",
        backend: "Rseq",
        work: "wait, one busy peer",
    };
    let ring = |title, work| Panel { title, group: "ring", backend: "-", work };
    let charts = [
        ("get_put", threads(run)?),
        ("kill", bars(run, "Grace periods", &[wait])?),
        (
            "ring",
            bars(
                run,
                "Handing pointers on",
                &[
                    ring("One thread, in and out", "one thread, size 1000"),
                    ring("Two threads, one by one", "two threads, size 1024"),
                    ring("Two threads, 64 at a time", "two threads, batch 64"),
                ],
            )?,
        ),
    ];
    Ok(charts.into_iter().map(|(name, svg)| (PathBuf::from(format!("docs/charts/{name}.svg")), svg)).collect())
}

/// Draws on paper of that height, and gives it its style.
fn picture(height: i32, about: &str, draw: impl FnOnce(&Area) -> Drawn) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        area.fill(&PAPER.light).map_err(text_of)?;
        draw(&area)?;
        area.present().map_err(text_of)?;
    }
    let hex = |colour: RGBColor| format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
    let rule = |ink: &&Ink| {
        let (light, dark) = (hex(ink.light), ink.dark);
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    };
    let rules: String = INKS.iter().map(rule).collect();
    let style = format!("<title>{about}</title>\n<style>@media(prefers-color-scheme:dark){{{rules}}}</style>");
    let (head, rest) = svg.split_once(">\n").ok_or("plotters drew nothing")?;
    Ok(format!("{head} role=\"img\">\n{style}\n{rest}\n"))
}

fn text_of(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Words at a place; `across` says which part of them is there.
fn write(area: &Area, words: &str, at: (i32, i32), size: i32, ink: &Ink, across: HPos) -> Drawn {
    let style = (FONT, size).into_font().color(&ink.light).pos(Pos::new(across, VPos::Center));
    area.draw(&Text::new(words.to_owned(), at, style)).map_err(text_of)
}

fn line(area: &Area, points: Vec<(i32, i32)>, ink: &Ink, width: u32) -> Drawn {
    area.draw(&PathElement::new(points, ink.light.stroke_width(width))).map_err(text_of)
}

fn titles(area: &Area, title: &str, below: &str) -> Drawn {
    write(area, title, (24, 26), 19, &TEXT, HPos::Left)?;
    write(area, below, (24, 49), 13, &FAINT, HPos::Left)
}

/// A round number that is at least this, and in how many parts it falls that are round, too.
fn round_up(number: f64) -> (f64, i32) {
    let power = 10_f64.powf(number.log10().floor());
    let tops = [(1.0, 5), (1.5, 3), (2.0, 4), (3.0, 3), (4.0, 4), (5.0, 5), (6.0, 3), (8.0, 4), (10.0, 5)];
    let (top, parts) = tops.into_iter().find(|(top, _)| top * power >= number).unwrap_or((10.0, 5));
    (top * power, parts)
}

/// What taking and dropping a reference costs, by threads.
fn threads(run: &Run) -> Result<String, String> {
    let work = "take and drop, by threads";
    let mut series: Vec<(&str, &Ink, Vec<&Figure>)> =
        vec![("Arc", &RED, vec![]), ("Plain", &PURPLE, vec![]), ("Sched", &BLUE, vec![])];
    for row in run.work("get_put", &run.backend, work)? {
        for figure in std::iter::once(&row.ours).chain(&row.rival) {
            let name = figure.name.split(", ").next().unwrap_or_default();
            let Some(one) = series.iter_mut().find(|one| one.0 == name) else { continue };
            // Its rival stands beside each of ours.
            if one.2.iter().all(|other| other.threads != figure.threads) {
                one.2.push(figure);
            }
        }
    }
    if let Ok(rows) = run.work("get_put", "Membarrier", work) {
        series.push(("Sched without rseq", &SKY, rows.into_iter().map(|row| &row.ours).collect()));
    }
    let columns = series.iter().map(|one| one.2.len()).max().unwrap_or(0);
    let (top, parts) = round_up(series.iter().flat_map(|one| &one.2).map(|figure| figure.median).fold(1.0, f64::max));
    let (left, right, above, below) = (64, WIDTH - 190, 84, 356);
    let x = |column: usize| left + 24 + (right - left - 48) * column as i32 / (columns as i32 - 1).max(1);
    let y = |nanos: f64| below - ((below - above) as f64 * nanos / top) as i32;
    let about = "Nanoseconds to take and drop a reference on one object, by threads";
    picture(420, about, |area| {
        titles(
            area,
            "Take and drop a reference, everybody on one object",
            &format!("ns of CPU time for one, median; {} CPUs. Flat is perfect, lower is better.", run.machine.cpus),
        )?;
        for step in 0..=parts {
            let nanos = top * f64::from(step) / f64::from(parts);
            line(area, vec![(left, y(nanos)), (right, y(nanos))], &GRID, 1)?;
            let label = if nanos.fract() == 0.0 { format!("{nanos:.0}") } else { format!("{nanos:.1}") };
            write(area, &label, (left - 10, y(nanos)), 13, &FAINT, HPos::Right)?;
        }
        let longest = series.iter().map(|one| &one.2).max_by_key(|figures| figures.len()).ok_or("no series")?;
        for (column, figure) in longest.iter().enumerate() {
            let threads = figure.threads.unwrap_or(1);
            let label = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
            write(area, &label, (x(column), below + 20), 13, &FAINT, HPos::Center)?;
            if threads > run.machine.cpus {
                write(area, "(by turns)", (x(column), below + 38), 11, &FAINT, HPos::Center)?;
            }
        }
        // Names at the right end, apart from each other.
        let mut ends: Vec<(i32, usize)> = Vec::new();
        for (i, (_, ink, figures)) in series.iter().enumerate() {
            let points: Vec<_> =
                figures.iter().enumerate().map(|(column, figure)| (x(column), y(figure.median))).collect();
            ends.extend(points.last().map(|end| (end.1, i)));
            for &point in &points {
                area.draw(&Circle::new(point, 4, ink.light.filled())).map_err(text_of)?;
            }
            line(area, points, ink, 3)?;
        }
        ends.sort_unstable_by_key(|end| std::cmp::Reverse(end.0));
        let mut lowest = i32::MAX;
        for (end, i) in ends {
            let (name, ink, figures) = &series[i];
            let at = end.min(lowest - 18);
            lowest = at;
            let nanos = figures.last().map_or(0.0, |figure| figure.median);
            write(area, &format!("{name}: {} ns", short(nanos)), (right + 8, at), 14, ink, HPos::Left)?;
        }
        Ok(())
    })
}

/// The figures of one work.
struct Panel {
    title: &'static str,
    group: &'static str,
    backend: &'static str,
    work: &'static str,
}

/// Bars, a panel below the other: the medians, each with a tick at the minimum. Ours are blue.
fn bars(run: &Run, title: &str, panels: &[Panel]) -> Result<String, String> {
    const BAR: i32 = 24;
    const HEAD: i32 = 34;
    let mut shown: Vec<(&str, Vec<(&Figure, bool)>)> = Vec::new();
    let mut unit = "";
    for panel in panels {
        let rows = run.work(panel.group, panel.backend, panel.work)?;
        unit = &rows[0].unit;
        let mut figures: Vec<(&Figure, bool)> = Vec::new();
        let ours = rows.iter().map(|row| (&row.ours, true));
        let rivals = rows.iter().filter_map(|row| row.rival.as_ref().map(|rival| (rival, false)));
        for (figure, is_ours) in ours.chain(rivals) {
            if figures.iter().all(|(other, _)| other.name != figure.name) {
                figures.push((figure, is_ours));
            }
        }
        shown.push((panel.title, figures));
    }
    let height = 72 + shown.iter().map(|(_, figures)| HEAD + BAR * figures.len() as i32 + 8).sum::<i32>() + 8;
    let (left, right) = (240, WIDTH - 90);
    let about = format!("{title}: {}", panels.iter().map(|panel| panel.work).collect::<Vec<_>>().join(", "));
    picture(height, &about, |area| {
        titles(area, title, &format!("{unit}, median; the tick is the minimum. Shorter is better."))?;
        let mut y = 72;
        for (title, figures) in &shown {
            write(area, title, (24, y + HEAD / 2), 14, &TEXT, HPos::Left)?;
            y += HEAD;
            let top = figures.iter().map(|(figure, _)| figure.median).fold(f64::MIN_POSITIVE, f64::max);
            let x = |value: f64| left + ((right - left) as f64 * value / top) as i32;
            for (figure, is_ours) in figures {
                let ink = if *is_ours { &BLUE } else { &GREY };
                let bar = [(left, y + 4), (x(figure.median), y + BAR - 4)];
                area.draw(&Rectangle::new(bar, ink.light.filled())).map_err(text_of)?;
                let tick = vec![(x(figure.min), y + 4), (x(figure.min), y + BAR - 4)];
                line(area, tick, &PAPER, 2)?;
                write(area, &figure.name, (left - 10, y + BAR / 2), 13, &TEXT, HPos::Right)?;
                write(area, &short(figure.median), (x(figure.median) + 8, y + BAR / 2), 13, &FAINT, HPos::Left)?;
                y += BAR;
            }
            y += 8;
        }
        Ok(())
    })
}
