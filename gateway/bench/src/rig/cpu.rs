//! CPU time of a process, over its restarts; and its memory now.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// The unit of `/proc/PID/stat`: `USER_HZ`, which Linux has fixed at 100 for every program.
const TICK: Duration = Duration::from_millis(10);

/// Counts what a process used that is killed and started again.
#[derive(Debug, Default)]
pub(super) struct Meter {
    ended: Duration,
    pid: Option<u32>,
}

impl Meter {
    /// A process began.
    pub(super) fn starts(&mut self, pid: u32) {
        self.pid = Some(pid);
    }

    /// The process is about to end.
    pub(super) fn ends(&mut self) {
        self.ended = self.total();
        self.pid = None;
    }

    /// The process that runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Everything so far.
    pub(super) fn total(&self) -> Duration {
        self.ended + self.pid.map(of).unwrap_or_default()
    }
}

/// Of a process that runs; nothing of one that does not.
pub(crate) fn of(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.ok().and_then(|stat| of_stat(&stat)).unwrap_or_default()
}

/// Resident memory of a process in bytes.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("reading the status of process {pid}"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(1_024 * kib.with_context(|| format!("process {pid} has no VmRSS"))?)
}

/// User and system time of `/proc/PID/stat` (proc(5): fields 14 and 15). The second field is a name in parentheses that may
/// hold anything, so counting begins after the last one.
fn of_stat(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map(|field| field.parse::<u32>().ok());
    let (user, system) = (times.next()??, times.next()??);
    Some(TICK * user.checked_add(system)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "4711 (redis) server) S 1 4711 4711 0 -1 4194560 1 0 0 0 150 25 7 8 20 0 5 0 100 1 1";
        assert_eq!(of_stat(stat), Some(Duration::from_millis(1_750)));
    }

    #[test]
    fn what_is_no_stat_has_no_time() {
        for text in ["", "1 (a", "1 (a) S 1 2 3", "1 (a) S 1 1 1 0 -1 4 1 0 0 0 x y"] {
            assert_eq!(of_stat(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_takes_memory() {
        assert!(resident(std::process::id()).unwrap() > 1 << 20);
        resident(u32::MAX).unwrap_err();
    }

    #[test]
    fn what_ended_still_counts() {
        let mut meter = Meter { ended: Duration::from_secs(3), pid: None };
        meter.starts(std::process::id());
        assert!(meter.total() >= Duration::from_secs(3));
        meter.ends();
        assert_eq!(meter.pid(), None);
        assert!(meter.total() >= Duration::from_secs(3));
    }
}
