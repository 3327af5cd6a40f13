//! Plots in SVG: bars side by side in groups, and points of several series.

use std::ops::Range;

use anyhow::{Context, ensure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (900, 480);
const FONT: &str = "sans-serif";

/// Apart for the colour-blind as well: those of Okabe and Ito (2008), then some of Tol's "muted" ones. They start over when used up.
const COLOURS: [RGBColor; 11] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x99, 0x99, 0x99),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The words of a plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    pub(crate) title: &'a str,
    /// What the horizontal axis shows, with its unit.
    pub(crate) x: &'a str,
    /// What the vertical axis shows, with its unit.
    pub(crate) y: &'a str,
}

/// A point, and the text beside it.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) label: String,
}

/// The scale of both axes, and what joins points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0; a line joins the points of a series.
    LinearJoined,
    /// From the least value; nothing joins points.
    Logarithmic,
}

/// Bars of each series, a height for each group; none where there is no figure.
///
/// # Errors
/// There is no height, or the drawing library fails.
pub(crate) fn bars(
    words: Words<'_>,
    groups: &[String],
    series: &[(String, Vec<Option<f64>>)],
) -> anyhow::Result<String> {
    let heights = series.iter().flat_map(|(_, heights)| heights.iter().flatten());
    let top = heights.fold(0.0, |top: f64, height| top.max(*height));
    ensure!(top > 0.0, "there is nothing to plot: {}", words.title);
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let width = 0.8 / series.len() as f64;
    draw(words.title, &names, |area| {
        let x_axis = GroupAxis::new(groups.len());
        let mut chart = builder(area).build_cartesian_2d(x_axis, 0.0..top * 1.05)?;
        let group = |place: &f64| groups.get(*place as usize).cloned().unwrap_or_default();
        mesh(&mut chart, words, &group)?;
        for (at, (_, heights)) in series.iter().enumerate() {
            let left = 0.1 + at as f64 * width;
            let drawn = heights.iter().enumerate();
            let drawn = drawn.filter_map(|(group, height)| Some((group as f64 + left, (*height)?)));
            let style = colour(at).filled();
            chart.draw_series(drawn.map(|(left, height)| {
                Rectangle::new([(left, 0.0), (left + width, height)], style)
            }))?;
        }
        Ok(())
    })
}

/// Points of each series, with their labels.
///
/// # Errors
/// There is no point, or the drawing library fails.
pub(crate) fn points(
    words: Words<'_>,
    scale: Scale,
    series: &[(String, Vec<Point>)],
) -> anyhow::Result<String> {
    let all = || series.iter().flat_map(|(_, points)| points);
    ensure!(all().next().is_some(), "there is nothing to plot: {}", words.title);
    let [x_range, y_range] = [axis(all().map(|of| of.x), scale), axis(all().map(|of| of.y), scale)];
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    draw(words.title, &names, |area| match scale {
        Scale::LinearJoined => {
            let mut chart = builder(area).build_cartesian_2d(x_range, y_range)?;
            mesh(&mut chart, words, &tick)?;
            draw_points(&mut chart, series, true)
        }
        Scale::Logarithmic => {
            let [x_ticks, y_ticks] = [ticks(&x_range), ticks(&y_range)];
            let x_axis = x_range.log_scale().with_key_points(x_ticks);
            let y_axis = y_range.log_scale().with_key_points(y_ticks);
            let mut chart = builder(area).build_cartesian_2d(x_axis, y_axis)?;
            mesh(&mut chart, words, &tick)?;
            draw_points(&mut chart, series, false)
        }
    })
}

/// An axis of groups, each one wide, with a tick in the middle of each.
struct GroupAxis {
    places: RangedCoordf64,
    groups: usize,
}

impl GroupAxis {
    fn new(groups: usize) -> Self {
        Self { places: (0.0..groups as f64).into(), groups }
    }
}

impl Ranged for GroupAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, pixels: (i32, i32)) -> i32 {
        self.places.map(place, pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.groups).map(|group| group as f64 + 0.5).collect()
    }

    fn range(&self) -> Range<f64> {
        self.places.range()
    }
}

/// The range of an axis that holds all values.
fn axis(values: impl Iterator<Item = f64> + Clone, scale: Scale) -> Range<f64> {
    let high = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    match scale {
        Scale::LinearJoined => 0.0..high * 1.08,
        Scale::Logarithmic => values.fold(high, f64::min) / 1.2..high * 1.2,
    }
}

/// The ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or all multiples up to 9 where the axis spans less than one power.
fn ticks(range: &Range<f64>) -> Vec<f64> {
    let multiples: &[f64] = match range.end / range.start < 10.0 {
        true => &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        false => &[1.0, 2.0, 5.0],
    };
    let powers = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let all = powers.flat_map(|power| multiples.iter().map(move |of| of * 10_f64.powi(power)));
    all.filter(|tick| range.contains(tick)).collect()
}

fn draw_points<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    series: &[(String, Vec<Point>)],
    are_joined: bool,
) -> anyhow::Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for (at, (_, points)) in series.iter().enumerate() {
        let style = colour(at);
        let places = || points.iter().map(|of| (of.x, of.y));
        if are_joined {
            chart.draw_series(LineSeries::new(places(), style))?;
        }
        chart.draw_series(places().map(|place| Circle::new(place, 4, style.filled())))?;
        let font = (FONT, 13).into_font().color(&style.color);
        let labelled = points.iter().filter(|of| !of.label.is_empty());
        chart.draw_series(labelled.map(|of| {
            EmptyElement::at((of.x, of.y)) + Text::new(of.label.clone(), (6, -14), font.clone())
        }))?;
    }
    Ok(())
}

/// A plot with a title above and a legend beside what `draw` draws.
fn draw(
    title: &str,
    names: &[&str],
    draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let below = root.margin(10, 0, 0, 0).titled(title, (FONT, 20))?;
        // Without fonts to measure, a character is taken for 8 pixels wide.
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let legend_width = (longest as u32 * 8 + 50).clamp(100, SIZE.0 / 2);
        let (chart, legend) = below.split_horizontally(SIZE.0 - legend_width);
        draw(&chart).with_context(|| format!("cannot draw '{title}'"))?;
        for (at, name) in names.iter().enumerate() {
            let y = 20 + 22 * at as i32;
            legend.draw(&Rectangle::new([(5, y - 6), (25, y + 6)], colour(at).filled()))?;
            legend.draw(&Text::new(name.to_string(), (33, y - 7), (FONT, 16)))?;
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
    words: Words<'_>,
    x_tick: &dyn Fn(&f64) -> String,
) -> anyhow::Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(10)
        .x_desc(words.x)
        .y_desc(words.y)
        .x_label_formatter(x_tick)
        .y_label_formatter(&tick)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 16))
        .draw()?;
    Ok(())
}

fn colour(series: usize) -> ShapeStyle {
    COLOURS[series % COLOURS.len()].stroke_width(2)
}

/// A tick's number, without the noise of binary fractions.
fn tick(value: &f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words<'_> = Words { title: "A <title>", x: "the size", y: "the time, ms" };

    #[test]
    fn bars_are_left_out_where_there_is_no_figure() {
        let groups = ["one".to_owned(), "two".to_owned()];
        let series =
            [("a".to_owned(), vec![Some(1.0), None]), ("b".to_owned(), vec![Some(2.0), Some(3.0)])];
        let svg = bars(WORDS, &groups, &series).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["one", "two", "a", "b", "A &lt;title&gt;", "the time, ms"] {
            assert!(svg.contains(&format!("\n{text}\n</text>")), "{text}");
        }
        // The paper, two of the legend, and three bars.
        assert_eq!(svg.matches("<rect").count(), 6);
        assert!(bars(WORDS, &groups, &[("a".to_owned(), vec![None, None])]).is_err());
    }

    #[test]
    fn ticks_are_within_their_axis() {
        let ticks = |range| ticks(&range).iter().map(tick).collect::<Vec<_>>();
        assert_eq!(ticks(0.42..1.1), ["0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"][1..]);
        assert_eq!(ticks(30.0..700.0), ["50", "100", "200", "500"]);
    }

    #[test]
    fn points_have_labels() {
        let point = |x, y| Point { x, y, label: format!("at {x}") };
        let series = [("a".to_owned(), vec![point(1.0, 2.0), point(30.0, 4.0)])];
        for scale in [Scale::LinearJoined, Scale::Logarithmic] {
            let svg = points(WORDS, scale, &series).unwrap();
            assert_eq!(svg.matches("<circle").count(), 2);
            let has_line = svg.contains("stroke=\"#0072B2\"");
            assert_eq!(has_line, scale == Scale::LinearJoined, "{svg}");
            assert!(svg.contains("\nat 30\n</text>"));
        }
        assert!(points(WORDS, Scale::Logarithmic, &[("a".to_owned(), vec![])]).is_err());
    }
}
