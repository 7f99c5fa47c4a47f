//! Which files a call can reach: Landlock.

use super::super::job::{Job, Reach};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};
use std::{
    env,
    path::{Path, PathBuf},
};

/// The newest rules that are asked for. The kernel enforces those that it has; the probe finds out what is missing.
const NEWEST: ABI = ABI::V9;
/// The files of the system that programs need.
const SYSTEM: &[&str] =
    &["/bin", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/opt", "/sbin", "/snap", "/usr"];
/// Devices that hold nothing.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];
/// What programs read about the machine, if they have no `/proc` of their own.
const MACHINE: &[&str] =
    &["/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/version"];

/// Confines this process to the files of its job. It can no longer send signals to processes outside.
pub(super) fn confine(job: &Job, has_own_proc: bool) -> Result<(), RulesetError> {
    let Reach { writes, system, read, write, .. } = &job.reach;
    let reading = AccessFs::from_read(NEWEST);
    let looking = AccessFs::ReadFile | AccessFs::ReadDir;
    let changing = AccessFs::from_all(NEWEST) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules([&job.root], if *writes { changing } else { reading }))?;
    let rules = if *system {
        let proc: &[&str] = if has_own_proc { &["/proc"] } else { MACHINE };
        let devices: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile;
        rules
            .add_rules(path_beneath_rules(SYSTEM, reading))?
            .add_rules(path_beneath_rules(programs(), reading))?
            .add_rules(path_beneath_rules(proc, looking))?
            .add_rules(path_beneath_rules(DEVICES, devices))?
            .add_rules(path_beneath_rules(read, reading))?
            .add_rules(path_beneath_rules(write, changing))?
    } else {
        rules
    };
    rules.restrict_self().map(drop)
}

/// Returns the folders in which programs are looked for, such as `~/.cargo/bin`.
fn programs() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Everything is below `/`, and relative folders are below the one of the runner.
    env::split_paths(&path).filter(|folder| folder.is_absolute() && folder != Path::new("/")).collect()
}
