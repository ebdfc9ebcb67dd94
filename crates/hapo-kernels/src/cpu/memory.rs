//! Memory that this process may still take: the least of the machine's, its control groups' and its `ulimit -v`.

use std::{fs::read_to_string, path::Path};

/// Bytes that are free for this process; `None` where the system does not say.
pub(super) fn free_bytes() -> Option<u64> {
    // On EIO, here and in the next three, memory is taken for unlimited, as where the system does not say.
    let machine = bytes_of("MemAvailable:", &read_to_string("/proc/meminfo").ok()?)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = of_groups(&groups, Path::new("/sys/fs/cgroup"));
    let read = |file: &str| read_to_string(file).unwrap_or_default();
    let own = of_address_space(&read("/proc/self/limits"), &read("/proc/self/status"));
    [Some(machine), of_groups, own].into_iter().flatten().min()
}

/// The limit on addresses of `/proc/self/limits` less the use in `/proc/self/status`; `None` without a limit.
fn of_address_space(limits: &str, status: &str) -> Option<u64> {
    let line = limits.lines().find_map(|it| it.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(bytes_of("VmSize:", status)?))
}

/// The bytes that a line of `/proc/meminfo` or `/proc/self/status` names in kB.
fn bytes_of(name: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    let kilobytes = line.trim().strip_suffix("kB")?.trim();
    Some(kilobytes.parse::<u64>().ok()? * 1024)
}

/// The least that is left to the control groups of `/proc/self/cgroup` and to those above them; `None` without limits.
fn of_groups(groups: &str, root: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (root, limit, used) = if controllers.is_empty() {
            (root.to_owned(), "memory.max", "memory.current")
        } else if controllers.split(',').any(|it| it == "memory") {
            (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            return None;
        };
        // In a container the path may be the host's: then the root is the group.
        let inner = root.join(path);
        let all = inner.ancestors().take_while(|it| it.starts_with(&root));
        all.filter_map(|it| left(&it.join(limit), &it.join(used), &it.join("memory.stat"))).min()
    };
    groups.lines().filter_map(of_line).min()
}

/// Memory that a group may still take; file pages that can be dropped do not count as used.
fn left(limit: &Path, used: &Path, stat: &Path) -> Option<u64> {
    // On EIO the group counts as one without a limit.
    let number = |path: &Path| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    // On EIO file pages count as used.
    let stat = read_to_string(stat).unwrap_or_default();
    let cached = stat.lines().find_map(|it| it.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    let used = number(used)?.saturating_sub(cached.unwrap_or(0));
    Some(number(limit)?.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_on_addresses_counts() {
        let limits = |soft: &str| {
            format!(
                "Limit  Soft  Hard  Units\nMax address space         {soft}            unlimited            bytes\n"
            )
        };
        let status = "Name:\thapo\nVmPeak:\t 9000 kB\nVmSize:\t    1000 kB\n";
        assert_eq!(of_address_space(&limits("unlimited"), status), None);
        assert_eq!(of_address_space(&limits("1024001"), status), Some(1));
        assert_eq!(of_address_space(&limits("1000"), status), Some(0));
        assert_eq!(of_address_space("", status), None);
    }

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal:       24689652 kB\nMemFree: 12 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(bytes_of("MemAvailable:", text), Some(1 << 20));
        assert_eq!(bytes_of("MemAvailable:", "MemTotal: 3 kB\n"), None);
    }

    #[test]
    fn the_smallest_group_above_the_process_decides() {
        let root = std::env::temp_dir().join(format!("hapo-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 1\ninactive_file 200\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "5\n");
        write("memory/x/memory.limit_in_bytes", "300\n");
        write("memory/x/memory.usage_in_bytes", "400\n");
        assert_eq!(of_groups("0::/a/b\n", &root), Some(500));
        assert_eq!(of_groups("4:cpu,memory:/x\n3:cpu:/a\n", &root), Some(0));
        assert_eq!(of_groups("0::/elsewhere\n", &root), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
