//! Which system calls fail in a call's processes: seccomp.

use seccompiler::{
    Error, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use std::{collections::BTreeMap, env::consts::ARCH};

/// System calls that no program of a project needs. Most of them are for the administrator.
const FORBIDDEN: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];
/// System calls whose arguments are in memory, where a filter cannot see them. Programs try others if these are missing.
const MISSING: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_openat2,
];
/// System calls that exist only in the second set of numbers that a kernel for x86-64 may have.
#[cfg(target_arch = "x86_64")]
const ONLY_X32: std::ops::RangeInclusive<i64> = 512..=547;
/// System calls that set the mode of a file, with the number of that argument.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
    (libc::SYS_openat, 3),
];
/// Flags of `clone` that make namespaces.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];
/// Requests of `ioctl` that write into a terminal.
const TERMINAL: &[u64] = &[libc::TIOCSTI, libc::TIOCLINUX];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the filters. Without the network, a program has sockets only if a network namespace connects them to nothing
/// but each other.
pub(super) fn confine(network: bool, own_network: bool) -> Result<(), Error> {
    apply(forbidden(network, own_network)?, libc::EPERM)?;
    apply(MISSING.iter().map(|number| (*number, Vec::new())).collect(), libc::ENOSYS)
}

fn forbidden(network: bool, own_network: bool) -> Result<Rules, Error> {
    let mut rules: Rules = FORBIDDEN.iter().map(|number| (*number, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(ONLY_X32.map(|number| (number, Vec::new())));
    for (number, argument) in MODES {
        let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
        rules.insert(*number, any(*argument, &bits)?);
    }
    rules.insert(
        libc::SYS_clone,
        any(0, &NAMESPACES.iter().map(|flag| u64::from(flag.cast_unsigned())).collect::<Vec<_>>())?,
    );
    let requests = TERMINAL.iter().map(|request| rule([(1, SeccompCmpOp::Eq, *request)]));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    let internet = [libc::AF_INET, libc::AF_INET6];
    let families: Vec<i32> = match (network, own_network) {
        // Names are looked up by local services, and addresses of interfaces by netlink.
        (true, _) => [&internet[..], &[libc::AF_UNIX, libc::AF_NETLINK]].concat(),
        (false, true) => internet.to_vec(),
        (false, false) => Vec::new(),
    };
    let others = families.iter().map(|family| (0, SeccompCmpOp::Ne, family.unsigned_abs().into()));
    let others: Vec<_> = others.collect();
    rules.insert(libc::SYS_socket, if others.is_empty() { Vec::new() } else { vec![rule(others)?] });
    Ok(rules)
}

/// Returns rules that match if the argument has one of these bits.
fn any(argument: u8, bits: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    bits.iter().map(|bit| rule([(argument, SeccompCmpOp::MaskedEq(*bit), *bit)])).collect()
}

fn rule(conditions: impl IntoIterator<Item = (u8, SeccompCmpOp, u64)>) -> Result<SeccompRule, Error> {
    let conditions =
        conditions.into_iter().map(|(at, operator, value)| SeccompCondition::new(at, Dword, operator, value));
    Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
}

fn apply(mut rules: Rules, errno: i32) -> Result<(), Error> {
    if cfg!(target_arch = "x86_64") {
        add_x32(&mut rules);
    }
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, ARCH.try_into()?)?;
    apply_filter(&seccompiler::BpfProgram::try_from(filter)?)
}

/// Adds the same rules for the second set of numbers that a kernel for x86-64 may have.
fn add_x32(rules: &mut Rules) {
    const X32: i64 = 0x4000_0000;
    let same: Vec<_> = rules.iter().map(|(number, rules)| (number | X32, rules.clone())).collect();
    rules.extend(same);
}
