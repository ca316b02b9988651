//! The figures as a picture: bars of throughput against the node by itself, and of processor time per transaction.

use std::fmt::Write as _;

use super::report::Report;
use super::through::Outcome;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 230.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
/// Room to the right of the longest bar, for its figure.
const RIGHT: f64 = 90.0;

/// A stretch of a bar: its length in the chart's unit, and its colour.
type Part = (f64, &'static str);

const GAPLESS: &str = "#2a7ab8";
const POSTGRES: &str = "#7fb2d9";
const NODE: &str = "#bbbbbb";

/// An SVG document.
pub(super) fn svg(report: &Report) -> String {
    let name = |run: &Outcome| format!("{}, {}, {} submitters", run.mode, run.store.name(), run.submitters);
    let mut ratios: Vec<(String, Vec<Part>)> = Vec::new();
    let mut costs: Vec<(String, Vec<Part>)> = Vec::new();
    for raw in &report.raw {
        let of_best = report.raw_per_second.map_or(0.0, |best| raw.mined_per_second / best);
        ratios.push((format!("raw, {} senders", raw.senders), vec![(of_best, NODE)]));
        let cpu = raw.node_cpu_ms_per_tx.unwrap_or_default();
        costs.push((format!("raw, {} senders", raw.senders), vec![(cpu, NODE)]));
    }
    for run in report.runs.iter().filter(|run| run.mode == "pipelined") {
        ratios.push((name(run), vec![(run.ratio_to_raw.unwrap_or_default(), GAPLESS)]));
        let cpu = run.cpu_ms_per_tx;
        let parts = [(cpu.gapless, GAPLESS), (cpu.postgres.unwrap_or_default(), POSTGRES)];
        costs.push((name(run), [parts.as_slice(), &[(cpu.node.unwrap_or_default(), NODE)]].concat()));
    }
    let mut body = String::new();
    let below = chart(&mut body, 20.0, "transactions per second, of the best raw try", &ratios);
    let title = "CPU ms per transaction: gapless (dark), PostgreSQL (light), node (grey)";
    let height = chart(&mut body, below + 24.0, title, &costs);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws rows of bars below `top`; where they end.
fn chart(body: &mut String, top: f64, title: &str, rows: &[(String, Vec<Part>)]) -> f64 {
    let length = |parts: &[Part]| parts.iter().map(|part| part.0).sum::<f64>();
    let longest = rows.iter().map(|row| length(&row.1)).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / longest;
    // Writing to a text cannot fail.
    let _ = writeln!(body, "<text x=\"10\" y=\"{top}\" font-weight=\"bold\">{title}</text>");
    let mut y = top + 10.0;
    for (name, parts) in rows {
        let (middle, mut x) = (y + BAR - 4.0, LEFT);
        let _ = writeln!(body, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0);
        for (value, colour) in parts {
            let width = value * scale;
            let _ = writeln!(
                body,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
            );
            x += width;
        }
        let _ = writeln!(body, "<text x=\"{:.1}\" y=\"{middle}\">{:.3}</text>", x + 6.0, length(parts));
        y += ROW;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::raw::RawTry;

    #[test]
    fn every_row_has_a_name_a_bar_and_a_figure() {
        let raw = RawTry {
            senders: 10,
            transactions: 5,
            seconds: 1.0,
            mined_per_second: 5.0,
            node_cpu_ms_per_tx: Some(0.2),
        };
        let mut report = Report { raw: vec![raw], ..Report::default() };
        report.compare();
        let drawn = svg(&report);
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
        assert_eq!(drawn.matches("raw, 10 senders</text>").count(), 2, "{drawn}");
        assert!(drawn.contains(">1.000</text>") && drawn.contains(">0.200</text>"), "{drawn}");
        assert!(svg(&Report::default()).ends_with("</svg>\n"));
    }
}
