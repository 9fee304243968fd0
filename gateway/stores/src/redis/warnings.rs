//! What is wrong with a server's configuration, read from its `INFO`. Advice only: the stores work all the same.

use super::info_field;

/// One sentence for each thing; `fails_over`: another server takes over when this one dies.
pub(super) fn of(info: &str, fails_over: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let policy = info_field(info, "maxmemory_policy").unwrap_or("unknown");
    if policy != "noeviction" {
        warnings.push(format!("Redis evicts keys (maxmemory-policy {policy}): buyers and order events can vanish; set noeviction"));
    }
    if info_field(info, "aof_enabled") != Some("1") {
        warnings.push("Redis keeps no append-only file: a restart loses the sales in force; set appendonly yes".to_owned());
    }
    let version = info_field(info, "redis_version").unwrap_or("unknown");
    if version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_none_or(|major| major < 7) {
        warnings.push(format!("Redis {version} is older than 7.0"));
    }
    if fails_over && info_field(info, "connected_slaves") == Some("0") {
        warnings.push("A Redis primary has no replica: nobody can take over from it".to_owned());
    }
    // The field is there only where the setting is.
    if fails_over && info_field(info, "min_slaves_good_slaves").is_none() {
        warnings.push(
            "A Redis primary that is cut off from its replicas goes on admitting, and all of that is lost at the failover; set \
             min-replicas-to-write 1"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::of;

    const FIT: &str = "redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";

    #[test]
    fn a_server_of_its_own_needs_no_replica() {
        assert!(of(&format!("{FIT}connected_slaves:0\r\n"), false).is_empty());
    }

    #[test]
    fn who_is_to_fail_over_needs_a_replica_and_has_to_insist_on_it() {
        assert_eq!(of(&format!("{FIT}connected_slaves:0\r\n"), true).len(), 2);
        assert!(of(&format!("{FIT}connected_slaves:1\r\nmin_slaves_good_slaves:1\r\n"), true).is_empty());
    }

    #[test]
    fn what_is_not_said_is_warned_about() {
        assert_eq!(of("", false).len(), 3);
    }
}
