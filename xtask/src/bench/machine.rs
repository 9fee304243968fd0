//! The machine a number comes from.

use std::fs;
use std::process::Command;

/// One line: processor, cores, memory, kernel.
pub(super) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = field(&cpuinfo, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = field(&read("/proc/meminfo"), "MemTotal").and_then(|kb| kb.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 20;
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{model}, {cores} cores, {memory} GiB, Linux {}", kernel.trim())
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.split_once(':')?.1.trim()))
}

/// The first line that `program args` prints.
pub(super) fn version(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown version").to_owned()
}
