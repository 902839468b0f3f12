//! The host's twelve checks as `ep verify` prints them: which passed, which one failed, which were not reached.

use ortolan::codes::Code;
use ortolan::host::HostError;
use ortolan::host::codes::*;
use serde::Serialize;

/// What each check looks at, and the codes with which it refuses.
const CHECKS: [(&str, &[Code]); 12] = [
    ("file and permissions", &[FILE_NOT_FOUND, FILE_UNREADABLE, WORLD_WRITABLE, FOREIGN_OWNER]),
    ("format, machine, segments", &[NOT_A_LIBRARY, WRONG_MACHINE, TRUNCATED, MALFORMED_LIBRARY]),
    (
        "manifest and operator catalogue",
        &[NO_MANIFEST, MANIFEST_INVALID, MANIFEST_FORMAT, CATALOGUE_INVALID, CATALOGUE_HASH],
    ),
    ("ABI version", &[ABI_MAJOR, ABI_MINOR]),
    (
        "core version, interfaces, target, processor",
        &[CORE_VERSION, NEEDS_INTERFACE, NO_INTERFACE, WRONG_TARGET, CPU_FEATURE, PANIC_ABORT, SCHEMA_DIFFERS],
    ),
    ("a child process that loads it", &[PROBE_CRASHED, PROBE_HUNG, PROBE_UNAVAILABLE]),
    ("opening it", &[MISSING_LIBRARY, UNDEFINED_SYMBOL, OPEN_FAILED, CHANGED_WHILE_LOADING]),
    (
        "entry, fingerprint, manifest in memory",
        &[ENTRY_MISSING, ENTRY_MAGIC, ENTRY_SIZE, FINGERPRINT, MANIFEST_DIFFERS],
    ),
    ("layout proof", &[LAYOUT_HEADER, LAYOUT]),
    ("function table", &[TABLE_SIZE, NULL_SLOT]),
    ("factory", &[FACTORY_FAILED]),
    ("devices", &[DEVICES_FAILED, NO_CAUSE]),
];

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Passed.
    Ok,
    /// The one that refused.
    Failed,
    /// An earlier one refused.
    NotReached,
}

impl Status {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Failed => "FAILED",
            Status::NotReached => "not reached",
        }
    }
}

/// One check of twelve.
#[derive(Debug, Serialize)]
pub struct Step {
    pub step: usize,
    pub check: &'static str,
    pub status: Status,
    pub code: Option<Code>,
    pub message: Option<String>,
    pub remedy: Option<&'static str>,
}

/// All twelve, given the error of the one that failed. A code of none of them is taken for the last one reached.
pub fn steps(error: Option<&HostError>) -> Vec<Step> {
    let failed =
        error.map(|e| CHECKS.iter().position(|(_, codes)| codes.contains(&e.code)).unwrap_or(CHECKS.len() - 1));
    let one = |(i, &(check, _)): (usize, &(&'static str, &[Code]))| {
        let here = error.filter(|_| failed == Some(i));
        let status = match failed {
            Some(at) if at == i => Status::Failed,
            Some(at) if at < i => Status::NotReached,
            _ => Status::Ok,
        };
        let (code, message, remedy) =
            (here.map(|e| e.code), here.map(|e| e.sentence.clone()), here.map(HostError::remedy));
        Step { step: i + 1, check, status, code, message, remedy }
    };
    CHECKS.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_host_belongs_to_one_check_in_order() {
        let asking = [EP_REQUEST, EP_NOT_FOUND, NO_MATCHING_VERSION, DUPLICATE_VERSION, NAME_TAKEN, NOT_LOADED, IN_USE];
        let reasons = [
            NO_DEVICE,
            NO_DRIVER,
            DRIVER_TOO_OLD,
            NO_HARDWARE,
            UNSUPPORTED_HARDWARE,
            PERMISSION,
            DISABLED,
            DEVICE_ERROR,
        ];
        let listed: Vec<Code> = CHECKS.iter().flat_map(|(_, codes)| codes.iter().copied()).collect();
        let rest: Vec<Code> = CODES.iter().copied().filter(|c| !asking.contains(c) && !reasons.contains(c)).collect();
        assert_eq!(listed, rest);
    }

    #[test]
    fn what_follows_a_failure_is_not_reached() {
        let error = HostError::new(ABI_MAJOR, "2 is not 1");
        let all = steps(Some(&error));
        let status: Vec<Status> = all.iter().map(|s| s.status).collect();
        assert_eq!(status[..5], [Status::Ok, Status::Ok, Status::Ok, Status::Failed, Status::NotReached]);
        assert_eq!((all[3].code, all[3].message.as_deref()), (Some(ABI_MAJOR), Some("2 is not 1")));
        assert!(steps(None).iter().all(|s| s.status == Status::Ok));
    }
}
