//! The memory that the machine, or the container, gives this process.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// What is assumed where the system does not tell.
const UNKNOWN_BYTES: usize = 8 << 30;

/// The bytes of memory that this process may use: those of the machine or, where its control groups allow less,
/// as in a container, these.
pub(crate) fn available_bytes() -> usize {
    let of_machine = read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    let membership = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&membership);
    let limits = limits.iter().filter_map(|file| read_to_string(file).ok()?.trim().parse().ok());
    limits.chain(of_machine).min().unwrap_or(UNKNOWN_BYTES)
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB.
fn total_bytes(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

/// The files that may hold a limit for a process whose `/proc/self/cgroup` is `membership`: those of its groups and
/// of all groups around them. A group without a limit has a word in its file, or a number beyond any memory.
fn limit_files(membership: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            of_one if of_one.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        // Inside a container, the path may be the one outside, where the root is the container's own group.
        files.extend(group.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_its_memory_in_kib() {
        let text = "MemTotal:       24601156 kB\nMemFree:        1 kB\n";
        assert_eq!(total_bytes(text), Some(24_601_156 * 1024));
        assert_eq!(total_bytes("MemFree: 1 kB"), None);
    }

    #[test]
    fn limits_are_looked_for_in_all_groups_around() {
        let paths = |membership: &str| {
            let files = limit_files(membership);
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(paths("0::/"), ["/sys/fs/cgroup/memory.max"]);
        let nested = ["a/b/memory.max", "a/memory.max", "memory.max"];
        assert_eq!(paths("0::/a/b"), nested.map(|file| format!("/sys/fs/cgroup/{file}")));
        let old = ["a/memory.limit_in_bytes", "memory.limit_in_bytes"];
        let of_old = "5:cpu:/a\n4:memory,hugetlb:/a\n";
        assert_eq!(paths(of_old), old.map(|file| format!("/sys/fs/cgroup/memory/{file}")));
    }

    #[test]
    fn there_is_some_memory() {
        let of_machine = total_bytes(&read_to_string("/proc/meminfo").unwrap()).unwrap();
        assert!((1 << 20..=of_machine).contains(&available_bytes()));
    }
}
