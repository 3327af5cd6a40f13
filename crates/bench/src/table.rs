//! Reports as plain text for people: a table with a row a report, how the policies compare, and
//! where the time went. Programs read the JSON lines instead.

use std::fmt::Write;

use crate::report::{BatchSample, Report};

/// The most batch samples that are shown of a run.
const SAMPLES_MAX: usize = 10;
/// Stands for a value that was not measured.
const NONE: &str = "-";

/// The table: a row a report, then the first policy of each rate against the others of that rate,
/// then where the time of each report went. Nothing for no reports.
pub fn table(reports: &[Report]) -> String {
    if reports.is_empty() {
        return String::new();
    }
    reports.iter().for_each(Report::debug_assert_finite);
    let mut text = rows(reports);
    if reports.iter().any(falls_behind) {
        text += "* not sustained: the queue grew to the end of the run, and latencies with it\n";
    }
    let comparisons = comparisons(reports);
    if !comparisons.is_empty() {
        text += "\n";
        text += &comparisons;
    }
    text += "\nWhere time goes\n";
    for report in reports {
        text += &where_time_goes(report);
    }
    text
}

fn rows(reports: &[Report]) -> String {
    const HEAD: [[&str; 15]; 2] = [
        [
            "",
            "rate",
            "throughput",
            "",
            "latency",
            "ms",
            "",
            "queue",
            "ms",
            "compute",
            "ms",
            "batch",
            "padding",
            "busy",
            "",
        ],
        [
            "policy", "req/s", "req/s", "steps/s", "p50", "p90", "p99", "p50", "p99", "p50", "p99",
            "mean", "%", "%", "errors",
        ],
    ];
    let mut rows = HEAD.map(|row| row.map(String::from).to_vec()).to_vec();
    for report in reports {
        let (latency, queue, compute) = (report.latency_ms, report.queue_ms, report.compute_ms);
        let cell = report.busiest_cell().map(|(_, cell)| cell);
        rows.push(vec![
            marked(report),
            report.rate_rps.map_or("saturated".into(), |rate_rps| rate_rps.to_string()),
            number(report.throughput_rps),
            number(report.steps_per_s),
            number(latency.p50),
            number(latency.p90),
            number(latency.p99),
            number_or_none(queue.map(|times| times.p50)),
            number_or_none(queue.map(|times| times.p99)),
            number_or_none(compute.map(|times| times.p50)),
            number_or_none(compute.map(|times| times.p99)),
            number_or_none(cell.map(|cell| cell.batch_mean)),
            number_or_none(cell.map(|cell| 100.0 * cell.padding_share)),
            number_or_none(report.busy.map(|busy| 100.0 * busy)),
            report.errors.to_string(),
        ]);
    }
    align(&rows)
}

/// The first report of each rate against the others of that rate, a line each.
fn comparisons(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let first = reports.iter().find(|first| first.rate_rps == report.rate_rps);
        let Some(first) = first.filter(|first| first.policy != report.policy) else {
            continue;
        };
        let times = |a: f64, b: f64| number_or_none((b > 0.0).then(|| a / b));
        let throughput = times(first.throughput_rps, report.throughput_rps);
        let latency = times(first.latency_ms.p90, report.latency_ms.p90);
        let (load, first, other) = (load(report), marked(first), marked(report));
        let _ = writeln!(
            text,
            "{load}: {first} has {throughput} x the throughput and {latency} x the p90 latency \
             of {other}"
        );
    }
    text
}

fn where_time_goes(report: &Report) -> String {
    let or_none = |text: Option<String>| text.unwrap_or(NONE.into());
    let mut lines = vec![
        (
            "lateness",
            or_none(report.lateness_ms.map(|late| {
                let (p50, p99, max) = (number(late.p50), number(late.p99), number(late.max));
                format!("p50 {p50} ms, p99 {p99} ms, max {max} ms")
            })),
        ),
        (
            "cpu",
            or_none(report.cpu_s.map(|cpu| {
                let total = cpu.compute + cpu.manager + cpu.other;
                let percent = |part| number(if total > 0.0 { 100.0 * part / total } else { 0.0 });
                format!(
                    "{} s: compute {} %, manager {} %, other {} %",
                    number(total),
                    percent(cpu.compute),
                    percent(cpu.manager),
                    percent(cpu.other)
                )
            })),
        ),
        ("client cpu", or_none(report.client_cpu_s.map(|cpu_s| format!("{} s", number(cpu_s))))),
        (
            "manager",
            or_none(report.manager_ns.map(|ns| {
                let (request, node) = (number(ns.per_request), number(ns.per_node));
                format!("{request} ns a request, {node} ns a node")
            })),
        ),
    ];
    if let Some(kernel) = report.kernel {
        let [cells, threads, waited] =
            [kernel.cells_s, kernel.threads_s, kernel.descheduled_s].map(number);
        let share = number(100.0 * kernel.share);
        let text = format!(
            "{cells} s of cells at the kernels' own rate in {threads} s of compute threads, less \
             {waited} s without a core: {share} %"
        );
        lines.push(("kernels", text));
    }
    for (name, cell) in report.cells.iter().flatten() {
        let (tasks, p50, max) = (cell.tasks, cell.batch_p50, cell.batch_max);
        let (mean, padding) = (number(cell.batch_mean), number(100.0 * cell.padding_share));
        let mut text = format!(
            "{name}: {tasks} tasks, batch mean {mean}, p50 {p50}, max {max}, padding {padding} %"
        );
        if cell.wasted_share > 0.0 {
            let _ =
                write!(text, ", past the end of sequence {} %", number(100.0 * cell.wasted_share));
        }
        lines.push(("cell", text));
    }
    let mut text = String::new();
    for (what, line) in lines {
        let _ = writeln!(text, "{what:<12}{line}");
    }
    text += &batch_over_time(report.batch_over_time.as_deref().unwrap_or_default());
    let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("{}, {}\n{indented}", report.policy, load(report))
}

/// At most [`SAMPLES_MAX`] samples, evenly apart, the first and the last among them; a column each.
fn batch_over_time(samples: &[BatchSample]) -> String {
    let shown = samples.len().min(SAMPLES_MAX);
    let pick = |i: usize| samples[i * (samples.len() - 1) / (shown - 1).max(1)];
    let picked: Vec<BatchSample> = (0..shown).map(pick).collect();
    if picked.is_empty() {
        return String::new();
    }
    let row = |name: &str, value: &dyn Fn(&BatchSample) -> String| {
        [name.to_string()].into_iter().chain(picked.iter().map(value)).collect::<Vec<_>>()
    };
    align(&[
        row("at s", &|sample| number(sample.at_s)),
        row("batch mean", &|sample| number(sample.batch_mean)),
        row("in flight", &|sample| sample.in_flight.to_string()),
    ])
}

/// The policy's name, with the mark of a rate that it did not keep up with.
fn marked(report: &Report) -> String {
    format!("{}{}", report.policy, if falls_behind(report) { "*" } else { "" })
}

/// Whether the server did not keep up with a rate.
fn falls_behind(report: &Report) -> bool {
    report.rate_rps.is_some() && !report.sustained
}

fn load(report: &Report) -> String {
    report.rate_rps.map_or("saturated".into(), |rate_rps| format!("{rate_rps} req/s"))
}

/// Rows as lines: columns as wide as their widest, the first to the left, the others to the right.
fn align(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

/// Three significant digits, and no fewer than all before the point.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size @ 1e-6..100.0 => (2 - size.log10().floor() as i32) as usize,
        _ => 0,
    };
    format!("{value:.digits$}")
}

fn number_or_none(value: Option<f64>) -> String {
    value.map_or(NONE.into(), number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{measured, unmeasured};
    use expect_test::expect;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [0.0, 1e-9, 0.000_123_4, 0.012_34, 0.5, 1.0, 9.876, 56.78, 123.4, 123_456.7];
        let texts = cases.map(number);
        let expected =
            ["0", "0", "0.000123", "0.0123", "0.500", "1.00", "9.88", "56.8", "123", "123457"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn policies_at_one_rate_are_compared() {
        let reports = [
            measured("cellular", 500.0, 8.0),
            Report {
                errors: 3,
                cells: None,
                batch_over_time: None,
                sustained: false,
                ..measured("padded:10", 500.0, 32.5)
            },
        ];
        expect![[r#"
                         rate  throughput           latency    ms        queue    ms  compute    ms  batch  padding  busy
            policy      req/s       req/s  steps/s      p50   p90   p99    p50   p99      p50   p99   mean        %     %  errors
            cellular      500         495    12000     4.00  8.00  16.0   1.00  4.00     3.00  12.0   12.5     12.5  75.0       0
            padded:10*    500         495    12000     16.2  32.5  65.0   4.06  16.2     12.2  48.8      -        -  75.0       3
            * not sustained: the queue grew to the end of the run, and latencies with it

            500 req/s: cellular has 1.00 x the throughput and 0.246 x the p90 latency of padded:10*

            Where time goes
            cellular, 500 req/s
              lateness    p50 0.0100 ms, p99 0.200 ms, max 1.50 ms
              cpu         10.0 s: compute 80.0 %, manager 15.0 %, other 5.00 %
              client cpu  0.250 s
              manager     5000 ns a request, 123 ns a node
              cell        embed: 90 tasks, batch mean 20.0, p50 16, max 64, padding 12.5 %
              cell        lstm: 2000 tasks, batch mean 12.5, p50 16, max 64, padding 12.5 %
              at s           0  0.500  1.00
              batch mean  12.2   12.2  12.2
              in flight     40     40    40
            padded:10, 500 req/s
              lateness    p50 0.0100 ms, p99 0.200 ms, max 1.50 ms
              cpu         10.0 s: compute 80.0 %, manager 15.0 %, other 5.00 %
              client cpu  0.250 s
              manager     5000 ns a request, 123 ns a node
        "#]].assert_eq(&table(&reports));
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        expect![[r#"
                           rate  throughput           latency   ms       queue   ms  compute   ms  batch  padding  busy
            policy        req/s       req/s  steps/s      p50  p90  p99    p50  p99      p50  p99   mean        %     %  errors
            cellular  saturated         990    24000     50.0  100  200      -    -        -    -      -        -     -       0
            merged    saturated         990    24000     50.0  100  200      -    -        -    -      -        -     -       0

            saturated: cellular has 1.00 x the throughput and 1.00 x the p90 latency of merged

            Where time goes
            cellular, saturated
              lateness    -
              cpu         -
              client cpu  -
              manager     -
            merged, saturated
              lateness    -
              cpu         -
              client cpu  -
              manager     -
        "#]].assert_eq(&table(&[unmeasured("cellular"), unmeasured("merged")]));
    }

    #[test]
    fn one_policy_at_two_rates_is_not_compared() {
        let reports = [measured("cellular", 0.5, 8.0), measured("cellular", 1000.0, 10.0)];
        assert!(!table(&reports).contains(" x "));
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn long_runs_show_ten_samples_with_both_ends() {
        let sample = |i: u64| BatchSample { at_s: i as f64, batch_mean: 2.0, in_flight: i };
        let text = |count| batch_over_time(&(0..count).map(sample).collect::<Vec<_>>());
        expect![[r#"
              at s           0  11.0  22.0  33.0  44.0  55.0  66.0  77.0  88.0  99.0
              batch mean  2.00  2.00  2.00  2.00  2.00  2.00  2.00  2.00  2.00  2.00
              in flight      0    11    22    33    44    55    66    77    88    99
        "#]]
        .assert_eq(&text(100));
        assert_eq!(text(1), "at s           0\nbatch mean  2.00\nin flight      0\n");
        assert_eq!(text(0), "");
    }
}
