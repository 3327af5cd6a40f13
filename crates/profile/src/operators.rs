//! The operators of a cell for people.

use std::fmt::Write as _;

use batchmaker_device::{BatchSize, OperatorMeasurement};

/// A table of the operators of cell `name`, the slowest first: the time of each, its share of the cell's, and how much of that time
/// the machine needs at least.
pub fn operator_table(name: &str, batch: BatchSize, operators: &[OperatorMeasurement]) -> String {
    let total: f64 = operators.iter().map(|of| of.ns).sum();
    let least: f64 = operators.iter().map(|of| of.ns_min).sum();
    let share = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    let steps = batch.steps.map_or(String::new(), |steps| format!(" of {steps} steps"));
    let mut text = format!("{name}, operator by operator, a batch of {}{steps}\n", batch.rows);
    let _ = writeln!(text, "  {:>10}  {:>6}  {:>8}  operators -> output", "us", "time", "of limit");
    let mut slowest: Vec<&OperatorMeasurement> = operators.iter().collect();
    slowest.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    for OperatorMeasurement { operators, output, ns, ns_min } in slowest {
        let (time, limit) = (share(*ns, total), share(*ns_min, *ns).min(100.0));
        let us = ns / 1e3;
        let _ =
            writeln!(text, "  {us:>10.1}  {time:>5.1}%  {limit:>7.0}%  {operators} -> {output}");
    }
    let _ = writeln!(text, "  {:>10.1}  100.0%  {:>7.0}%  all", total / 1e3, share(least, total));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_operator_comes_first() {
        let operator = |name: &str, ns: f64, ns_min: f64| OperatorMeasurement {
            operators: name.to_owned(),
            output: format!("y of {name}"),
            ns,
            ns_min,
        };
        let operators = [operator("Relu", 1000.0, 900.0), operator("Conv", 3000.0, 1500.0)];
        let table = operator_table("front", BatchSize { rows: 2, steps: Some(64) }, &operators);
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert_eq!(lines[0], "front, operator by operator, a batch of 2 of 64 steps");
        assert_eq!(lines[2], "3.0   75.0%       50%  Conv -> y of Conv");
        assert_eq!(lines[3], "1.0   25.0%       90%  Relu -> y of Relu");
        assert_eq!(lines[4], "4.0  100.0%       60%  all");
    }
}
