//! The lengths that shapes inside a program depend on: which input ports have lengths of their own, and which always
//! have the same.

use crate::port::{Factor, Port};

/// The lengths of a program's inputs. Each is that of one or several input ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    /// The input ports of each length.
    ports: Vec<Vec<usize>>,
    /// For each input port, whether its length is the value that it holds, not its rows.
    is_value: Vec<bool>,
    /// For each input port, the lengths whose product is the number of its steps; none: it is a length of its own.
    factors: Vec<Vec<Factor>>,
}

/// The input ports that have a length: those of all steps, and those of one integer for all sequences, which may be
/// the number of steps of another tensor.
pub(crate) fn ports_of_lengths(inputs: &[Port]) -> Vec<usize> {
    let has = |port: &usize| {
        let Port { axes, factors, .. } = &inputs[*port];
        (axes.steps && factors.is_empty()) || inputs[*port].is_count()
    };
    (0..inputs.len()).filter(has).collect()
}

impl Lengths {
    /// Finds which of the program's ports have equal lengths. `runs` says whether the program takes `changed` as the
    /// length of some ports while the others keep theirs; it takes that of all.
    pub(crate) fn find(inputs: &[Port], mut runs: impl FnMut(&[usize]) -> bool) -> Self {
        let is_value = inputs.iter().map(Port::is_count).collect();
        let factors = inputs.iter().map(|port| port.factors.clone()).collect();
        let all = ports_of_lengths(inputs);
        if all.len() < 2 {
            let ports = all.into_iter().map(|port| vec![port]).collect();
            return Self { ports, is_value, factors };
        }
        let (alone, mut tied): (Vec<usize>, Vec<usize>) =
            all.iter().copied().partition(|&port| runs(&[port]));
        let mut ports: Vec<Vec<usize>> = alone.into_iter().map(|port| vec![port]).collect();
        while let Some(first) = tied.first().copied() {
            let mut others = tied[1..].iter().copied();
            let mut group = match others.find(|&other| runs(&[first, other])) {
                Some(other) => vec![first, other],
                None => tied.clone(),
            };
            if group.len() > 2 && !runs(&group) {
                // Nothing less than all is known to be consistent.
                group.clone_from(&all);
                ports.clear();
                tied.clear();
            }
            tied.retain(|port| !group.contains(port));
            ports.push(group);
        }
        Self { ports, is_value, factors }
    }

    /// The number of lengths.
    pub(crate) fn count(&self) -> usize {
        self.ports.len()
    }

    /// The input ports of a length.
    pub(crate) fn ports(&self, length: usize) -> &[usize] {
        &self.ports[length]
    }

    /// The lengths of a request whose ports have `spans`: the input ports, then the output ports. A value whose product
    /// with others is a span is taken to be as large as the others, any other value as large as the largest span.
    pub(crate) fn of(&self, spans: &[u32]) -> Vec<f64> {
        let longest = f64::from(spans.iter().copied().max().unwrap_or(1));
        let root = |port: usize| {
            let products = self.factors.iter().zip(spans);
            let values = products.flat_map(|(factors, &span)| {
                let root = f64::from(span).powf(1.0 / factors.len() as f64).ceil();
                let own = factors.iter().filter(move |factor| factor.port == port);
                own.map(move |factor| factor.value(root))
            });
            values.reduce(f64::max)
        };
        let of_port = |&port: &usize| match self.is_value[port] {
            true => root(port).unwrap_or(longest),
            false => f64::from(spans[port]),
        };
        let most = |ports: &Vec<usize>| ports.iter().map(of_port).reduce(f64::max).unwrap_or(1.0);
        self.ports.iter().map(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{ElementType, PortAxes, RowSpec};

    use super::*;

    fn ports(count: usize) -> Vec<Port> {
        let row = RowSpec::new(ElementType::F32, [2]);
        let axes = PortAxes { batch: true, steps: true };
        (0..count).map(|_| Port { row: row.clone(), axes, factors: Vec::new() }).collect()
    }

    /// The ports of each length where those of a group must be changed together.
    fn found(groups: &[&[usize]]) -> Vec<Vec<usize>> {
        let count = groups.iter().map(|group| group.len()).sum();
        let is_whole = |changed: &[usize], group: &[usize]| {
            let of_group = changed.iter().filter(|port| group.contains(port)).count();
            of_group == 0 || of_group == group.len()
        };
        let runs = |changed: &[usize]| groups.iter().all(|group| is_whole(changed, group));
        let mut found = Lengths::find(&ports(count), runs).ports;
        found.sort();
        found
    }

    #[test]
    fn ports_that_must_be_equally_long_share_a_length() {
        assert_eq!(found(&[&[0]]), [vec![0]]);
        assert_eq!(found(&[&[0], &[1]]), [vec![0], vec![1]]);
        assert_eq!(found(&[&[0, 1]]), [vec![0, 1]]);
        assert_eq!(found(&[&[0, 2], &[1, 3]]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(found(&[&[0, 1, 2], &[3]]), [vec![0, 1, 2], vec![3]]);
        assert_eq!(found(&[&[0, 1, 2], &[3, 4, 5]]), [vec![0, 1, 2, 3, 4, 5]]);
    }

    #[test]
    fn a_length_is_the_longest_of_its_ports() {
        let lengths = Lengths::find(&ports(2), |changed| changed.len() == 2);
        assert_eq!(lengths.of(&[3, 5, 1]), [5.0]);
        assert_eq!(Lengths::find(&ports(2), |_| true).of(&[3, 5, 1]), [3.0, 5.0]);
    }
}
