//! The text of metrics (Prometheus exposition format 0.0.4): its order, and histograms of what was counted elsewhere.

use std::fmt::Write;

/// The families of a text in the order of their names, and the samples of each in the order of their labels: so that two texts of
/// one server differ in values alone.
pub(crate) fn ordered(text: &str) -> String {
    let mut families: Vec<(&str, String)> = text
        .split("\n\n")
        .map(str::trim)
        .filter(|family| !family.is_empty())
        .map(|family| (name_of(family), ordered_family(family)))
        .collect();
    families.sort();
    families.into_iter().map(|(_, family)| family + "\n").collect()
}

/// The name of a family, by its first line: `# HELP name …` or `# TYPE name …`.
fn name_of(family: &str) -> &str {
    family.split_whitespace().nth(2).unwrap_or_default()
}

fn ordered_family(family: &str) -> String {
    let (headers, samples): (Vec<&str>, Vec<&str>) =
        family.lines().partition(|line| line.starts_with('#'));
    let mut samples: Vec<(String, &str)> =
        samples.into_iter().map(|sample| (labels_of(sample), sample)).collect();
    // The buckets of a histogram, its sum and its count have the same labels, and keep their order.
    samples.sort_by(|(a, _), (b, _)| a.cmp(b));
    let samples = samples.into_iter().map(|(_, sample)| sample);
    headers.into_iter().chain(samples).flat_map(|line| [line, "\n"]).collect()
}

/// The labels of a sample but for the bound of a bucket.
fn labels_of(sample: &str) -> String {
    let labels = sample.find('{').zip(sample.rfind('}'));
    let labels = labels.map_or("", |(begin, end)| &sample[begin + 1..end]);
    let bound = labels.find("le=\"").unwrap_or(labels.len());
    labels[..bound].trim_end_matches(',').to_owned()
}

/// The number of things of each size from 0 on, with the labels of the samples.
pub(crate) struct Sizes<'a> {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) counts: &'a [u64],
}

/// Upper bounds of sizes in a histogram.
const BOUNDS: [usize; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// A histogram of sizes.
pub(crate) fn histogram<'a>(
    name: &str,
    help: &str,
    sizes: impl Iterator<Item = Sizes<'a>>,
) -> String {
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
    for Sizes { labels, counts } in sizes {
        let label = |(name, value): (&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(|(name, value)| label((name, value))).collect();
        let labels = labels.join(",");
        let total: u64 = counts.iter().sum();
        for bound in BOUNDS {
            let count: u64 = counts.iter().take(bound + 1).sum();
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let sum: u64 = (0..).zip(counts).map(|(size, count)| size * count).sum();
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {total}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}");
        let _ = writeln!(text, "{name}_count{{{labels}}} {total}");
    }
    text
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_have_one_order() {
        let text = "# HELP z A text.\n# TYPE z counter\nz{model=\"b\"} 1\nz{model=\"a\"} 2\n\n\
                    # TYPE a histogram\na_bucket{model=\"b\",le=\"2\"} 1\n\
                    a_bucket{model=\"b\",le=\"10\"} 3\na_sum{model=\"b\"} 9\na_count{model=\"b\"} 3\n\
                    a_bucket{model=\"a\",le=\"2\"} 0\na_sum{model=\"a\"} 0\n\n";
        let expected = "# TYPE a histogram\na_bucket{model=\"a\",le=\"2\"} 0\na_sum{model=\"a\"} 0\n\
                        a_bucket{model=\"b\",le=\"2\"} 1\na_bucket{model=\"b\",le=\"10\"} 3\n\
                        a_sum{model=\"b\"} 9\na_count{model=\"b\"} 3\n\n\
                        # HELP z A text.\n# TYPE z counter\nz{model=\"a\"} 2\nz{model=\"b\"} 1\n\n";
        assert_eq!(ordered(text), expected);
        assert_eq!(ordered(expected), expected);
    }

    #[test]
    fn sizes_are_counted_up_to_bounds() {
        let labels = vec![("model", "m\"1".to_owned()), ("cell", "c".to_owned())];
        let sizes = Sizes { labels, counts: &[0, 2, 0, 5, 1] };
        let text = histogram("rows", "Rows.", std::iter::once(sizes));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["# HELP rows Rows.", "# TYPE rows histogram"]);
        let bucket = "rows_bucket{model=\"m\\\"1\",cell=\"c\",le=";
        assert_eq!(lines[2], format!("{bucket}\"1\"}} 2"));
        assert_eq!(lines[4], format!("{bucket}\"4\"}} 8"));
        assert_eq!(lines[14], format!("{bucket}\"+Inf\"}} 8"));
        assert_eq!(lines[15], "rows_sum{model=\"m\\\"1\",cell=\"c\"} 21");
        assert_eq!(lines[16], "rows_count{model=\"m\\\"1\",cell=\"c\"} 8");
    }
}
