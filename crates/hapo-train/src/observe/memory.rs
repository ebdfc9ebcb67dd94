//! How much memory the process holds, where the system says.

pub fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM:")
}

fn status(field: &str) -> Option<u64> {
    // On EIO the metric is absent.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|it| it.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
