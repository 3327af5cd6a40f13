//! Reports as figures, in SVG: latency against throughput, and how times are distributed, as in
//! Figures 7 and 9 of the BatchMaker paper. Files and formats other than SVG are the caller's.

use std::io;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::Report;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
/// Apart for the colour-blind as well (Okabe and Ito, 2008). They start over when used up.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
];
/// A logarithmic axis has no 0: shorter times are drawn as a microsecond.
const SHORTEST_MS: f64 = 1e-3;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// No report has requests that were answered, or no series has points.
    #[error("there is nothing to plot: give reports of runs that answered requests")]
    Nothing,
    /// The drawing library failed.
    #[error("cannot draw the figure, please report this: {0}")]
    Draw(#[from] DrawingAreaErrorKind<io::Error>),
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// The 90th percentile of latency over throughput, a line a policy and a point a report, with bars
/// from the median to the 99th percentile (BatchMaker, Figure 7). A line follows the offered rates
/// upwards, saturation last, so that it bends back where throughput falls under overload.
///
/// # Errors
/// [`PlotError::Nothing`] if no report has requests.
pub fn latency_against_throughput(reports: &[Report], title: &str) -> Result<String, PlotError> {
    reports.iter().for_each(Report::debug_assert_finite);
    let mut reports: Vec<&Report> = reports.iter().filter(|report| report.requests > 0).collect();
    let mut policies: Vec<&str> = Vec::new();
    for report in &reports {
        if !policies.contains(&report.policy.as_str()) {
            policies.push(&report.policy);
        }
    }
    let rate = |report: &Report| report.rate_rps.unwrap_or(f64::INFINITY);
    reports.sort_by(|a, b| rate(a).total_cmp(&rate(b)));

    let times = reports.iter().flat_map(|report| [report.latency_ms.p50, report.latency_ms.p99]);
    let (y_range, y_ticks) = log_axis(times).ok_or(PlotError::Nothing)?;
    let throughputs = reports.iter().map(|report| report.throughput_rps);
    let x_max = throughputs.fold(0.0, f64::max).max(1e-3) * 1.06;

    figure(title, &policies, |area| {
        let y_axis = y_range.log_scale().with_key_points(y_ticks);
        let mut chart = builder(area).build_cartesian_2d(0.0..x_max, y_axis)?;
        mesh(&mut chart, "throughput (req/s)", "latency (ms): p90, bars from p50 to p99")?;
        for (i, policy) in policies.iter().enumerate() {
            let style = style(i);
            let of_policy = || reports.iter().filter(|report| report.policy == *policy);
            let line = of_policy().map(|r| (r.throughput_rps, at_least_shortest(r.latency_ms.p90)));
            chart.draw_series(LineSeries::new(line, style))?;
            chart.draw_series(of_policy().map(|report| {
                let latency = report.latency_ms;
                let [p50, p90, p99] =
                    [latency.p50, latency.p90, latency.p99].map(at_least_shortest);
                ErrorBar::new_vertical(report.throughput_rps, p50, p90, p99, style.filled(), 8)
            }))?;
        }
        Ok(())
    })
}

/// The time of a batch over the throughput at its size, for one cell in one precision.
#[derive(Clone, Debug)]
pub struct BatchCurve {
    /// For the legend.
    pub name: String,
    /// `(rows, microseconds a batch)`, rows ascending.
    pub points: Vec<(u32, f64)>,
    /// Rows a second that the processor's arithmetic allows, if known.
    pub rows_per_s_max: Option<f64>,
    /// Microseconds that it takes to read the weights once, if known.
    pub us_min: Option<f64>,
}

/// The time of a batch over throughput, a line a curve and a point a size of batch, which stands
/// beside it (BatchMaker, Figure 3); with the limits of the hardware as thin lines: no point lies to
/// the right of what arithmetic allows, nor below the time that reading the weights takes.
///
/// # Errors
/// [`PlotError::Nothing`] if no curve has points.
pub fn time_against_throughput(curves: &[BatchCurve], title: &str) -> Result<String, PlotError> {
    let rate = |&(rows, us): &(u32, f64)| f64::from(rows) / us * 1e6;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let times = points().map(|point| point.1 * 1e-3);
    let limits_ms = curves.iter().filter_map(|curve| Some(curve.us_min? * 1e-3));
    let (y_range, y_ticks) = log_axis(times.chain(limits_ms)).ok_or(PlotError::Nothing)?;
    let rates = points().map(rate);
    let limits = curves.iter().filter_map(|curve| curve.rows_per_s_max);
    let (x_range, x_ticks) = log_axis(rates.chain(limits)).ok_or(PlotError::Nothing)?;
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    figure(title, &names, |area| {
        let x_axis = x_range.clone().log_scale().with_key_points(x_ticks);
        let y_axis = y_range.clone().log_scale().with_key_points(y_ticks);
        let mut chart = builder(area).build_cartesian_2d(x_axis, y_axis)?;
        mesh(
            &mut chart,
            "throughput (rows/s); thin lines: arithmetic, and reading the weights once",
            "time of a batch (ms); numbers: rows",
        )?;
        for (i, curve) in curves.iter().enumerate() {
            let (style, thin) = (style(i), style(i).stroke_width(1));
            if let Some(rate) = curve.rows_per_s_max {
                let line = [(rate, y_range.start), (rate, y_range.end)];
                chart.draw_series(LineSeries::new(line, thin))?;
            }
            if let Some(us) = curve.us_min {
                let line = [(x_range.start, us * 1e-3), (x_range.end, us * 1e-3)];
                chart.draw_series(LineSeries::new(line, thin))?;
            }
            let places = || curve.points.iter().map(|point| (rate(point), point.1 * 1e-3));
            chart.draw_series(LineSeries::new(places(), style))?;
            chart.draw_series(places().map(|place| Circle::new(place, 3, style.filled())))?;
            let font = (FONT, 12).into_font().color(&style.color);
            let label = |(place, point): ((f64, f64), &(u32, f64))| {
                Text::new(point.0.to_string(), place, font.clone())
            };
            // Powers of two: between them there is no room.
            let labelled = places().zip(&curve.points).filter(|(_, p)| p.0.is_power_of_two());
            chart.draw_series(labelled.map(label))?;
        }
        Ok(())
    })
}

/// Cumulative distributions of times, a line each: `series` are names with points
/// `(ms, share of requests)`, such as [`Recorder::cdf`](crate::Recorder::cdf) gives, for queueing
/// in one figure and computation in another (BatchMaker, Figure 9). `x_label` says what the times
/// are, with their unit.
///
/// # Errors
/// [`PlotError::Nothing`] if no series has points.
pub fn time_cdf(
    series: &[(String, Vec<(f64, f64)>)],
    title: &str,
    x_label: &str,
) -> Result<String, PlotError> {
    let times = series.iter().flat_map(|(_, points)| points.iter().map(|&(ms, _)| ms));
    let (x_range, x_ticks) = log_axis(times).ok_or(PlotError::Nothing)?;
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    figure(title, &names, |area| {
        let x_axis = x_range.log_scale().with_key_points(x_ticks);
        let mut chart = builder(area).build_cartesian_2d(x_axis, 0.0..1.0)?;
        mesh(&mut chart, x_label, "share of requests")?;
        for (i, (_, points)) in series.iter().enumerate() {
            let points = points.iter().map(|&(ms, share)| (at_least_shortest(ms), share));
            chart.draw_series(LineSeries::new(points, style(i)))?;
        }
        Ok(())
    })
}

/// A figure with a title above and a legend beside what `draw` draws.
fn figure(
    title: &str,
    names: &[&str],
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let below = root.margin(10, 0, 0, 0).titled(title, (FONT, 22))?;
        // Without fonts to measure, a character is taken for 8 pixels wide.
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let legend_width = (longest as u32 * 8 + 60).clamp(120, SIZE.0 / 2);
        let (chart, legend) = below.split_horizontally(SIZE.0 - legend_width);
        draw(&chart)?;
        for (i, name) in names.iter().enumerate() {
            let y = 30 + 22 * i as i32;
            legend.draw(&PathElement::new([(5, y), (35, y)], style(i)))?;
            legend.draw(&Circle::new((20, y), 3, style(i).filled()))?;
            legend.draw(&Text::new(name.to_string(), (43, y - 7), (FONT, 16)))?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn builder<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).x_label_area_size(50).y_label_area_size(70);
    builder
}

fn mesh<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    x_label: &str,
    y_label: &str,
) -> Drawn
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(8)
        .x_desc(x_label)
        .y_desc(y_label)
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 17))
        .draw()
}

fn style(series: usize) -> ShapeStyle {
    COLOURS[series % COLOURS.len()].stroke_width(2)
}

fn at_least_shortest(ms: f64) -> f64 {
    ms.max(SHORTEST_MS)
}

/// A tick's number, without the noise of binary fractions.
fn tick(value: &f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// The range and ticks of a logarithmic axis that holds `values`: from tick to tick, which are 1, 2
/// and 5 times the powers of ten, or the powers alone over more than four of them. None for no
/// values.
fn log_axis(values: impl Iterator<Item = f64>) -> Option<(Range<f64>, Vec<f64>)> {
    let values: Vec<f64> = values.map(at_least_shortest).collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    let multiples: &[f64] = if high / low > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low.log10().floor() as i32 - 1)..=(high.log10().floor() as i32 + 1);
    let mut ticks: Vec<f64> =
        powers.flat_map(|power| multiples.iter().map(move |m| m * 10_f64.powi(power))).collect();
    // Powers of ten are not exact: a value this near to a tick is on it.
    let first = ticks.partition_point(|&tick| tick <= low * (1.0 + 1e-9)) - 1;
    let last = ticks.partition_point(|&tick| tick < high * (1.0 - 1e-9)).max(first + 1);
    ticks.truncate(last + 1);
    ticks.drain(..first);
    Some((ticks[0]..ticks[ticks.len() - 1], ticks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{measured, unmeasured};

    /// The ticks of an axis for two values.
    fn ticks(low: f64, high: f64) -> Vec<String> {
        log_axis([low, high].into_iter()).unwrap().1.iter().map(tick).collect()
    }

    #[test]
    fn a_log_axis_goes_from_tick_to_tick() {
        assert_eq!(ticks(3.0, 40.0), ["2", "5", "10", "20", "50"]);
        assert_eq!(ticks(0.015, 0.015), ["0.01", "0.02"]);
        assert_eq!(ticks(0.001, 0.01), ["0.001", "0.002", "0.005", "0.01"]);
        assert_eq!(ticks(10.0, 10.0), ["10", "20"]);
        assert_eq!(ticks(0.5, 20_000.0), ["0.1", "1", "10", "100", "1000", "10000", "100000"]);
        assert_eq!(log_axis(std::iter::empty()), None);
    }

    #[test]
    fn times_too_short_for_a_log_axis_are_lifted() {
        assert_eq!(log_axis([0.0].into_iter()).unwrap().0.end, 0.002);
    }

    #[test]
    fn a_figure_has_a_line_a_policy_and_a_point_a_report() {
        let reports = [
            measured("cellular", 500.0, 8.0),
            measured("padded:10", 500.0, 32.5),
            measured("cellular", 900.0, 12.0),
            unmeasured("cellular"),
        ];
        let svg = latency_against_throughput(&reports, "LSTM <1024>").unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["cellular", "padded:10", "throughput (req/s)", "LSTM &lt;1024&gt;"] {
            assert!(svg.contains(&format!("\n{text}\n</text>")), "{text}");
        }
        let legend_and_reports = 2 + 4;
        assert_eq!(svg.matches("<circle").count(), legend_and_reports);
    }

    #[test]
    fn a_line_follows_the_rates_and_ends_saturated() {
        let rate = |rate_rps| measured("cellular", rate_rps, 8.0);
        let figure = |reports: [Report; 3]| latency_against_throughput(&reports, "").unwrap();
        let sorted = figure([rate(100.0), rate(900.0), unmeasured("cellular")]);
        assert_eq!(figure([unmeasured("cellular"), rate(900.0), rate(100.0)]), sorted);
    }

    #[test]
    fn nothing_to_plot_is_an_error() {
        let report = Report { requests: 0, ..measured("cellular", 500.0, 8.0) };
        let nothing = latency_against_throughput(&[report], "");
        assert!(matches!(nothing, Err(PlotError::Nothing)));
        assert!(matches!(time_cdf(&[("a".into(), vec![])], "", ""), Err(PlotError::Nothing)));
    }
}
