//! Namespaces of a call: a view of the machine in which other processes, the network and changes outside are missing.
//!
//! They need no privileges where the system lets users create user namespaces.

use super::{super::job::Job, SPARE_PROCESSES};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount},
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with},
    process::{getegid, geteuid},
    thread::{
        CapabilitySet, CapabilitySets, UnshareFlags, configure_capability_in_ambient_set, set_capabilities,
        unshare_unsafe,
    },
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The lowest limit of processes that the kernel accepts for a namespace.
const MIN_PROCESSES: u32 = 301;

/// Gives the next child of this process its own users, processes, and, without `network`, its own network, in which there is
/// only the loopback interface.
///
/// # Errors
/// The system does not allow it.
pub fn separate(network: bool) -> io::Result<()> {
    // Reading these after the call would return those of the new namespace.
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    flags.set(UnshareFlags::NEWNET, !network);
    unshare(flags)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    if !network {
        bring_up_loopback()?;
    }
    // The child mounts its view of the files. Its user may not be root, so that the capability must be an ambient one.
    let all = CapabilitySet::all();
    let admin = CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: admin })?;
    Ok(configure_capability_in_ambient_set(admin, true)?)
}

#[allow(unsafe_code, reason = "the safe function is deprecated")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: Only a separate table of open files is a danger to the safety of I/O, and no flag here makes one.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Makes everything read-only but the folders that the job may change, and mounts a `/proc` of its own processes.
pub(super) fn view(job: &Job) -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    // Nothing that happens here may reach the rest of the machine.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let mut kept: Vec<&Path> = Vec::new();
    if job.reach.writes {
        kept.push(&job.root);
    }
    kept.extend(job.reach.write.iter().map(PathBuf::as_path).filter(|path| path.exists()));
    for path in &kept {
        mount_bind_recursive(*path, *path)?;
    }
    for (path, flags) in mounts(&fs::read_to_string("/proc/self/mountinfo")?) {
        if !kept.iter().any(|kept| path.starts_with(kept)) {
            // A mount below another one may not be reachable; Landlock guards its files nevertheless.
            let _ = mount_remount(&path, MountFlags::BIND | MountFlags::RDONLY | flags, "");
        }
    }
    // This process is still in the folder that is hidden by now.
    std::env::set_current_dir(&job.root)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    // A limit for root, whom the one of `setrlimit` does not stop. Linux before 6.14 has it only for the whole machine.
    let processes = job.limits.processes.saturating_add(SPARE_PROCESSES).max(MIN_PROCESSES);
    let _ = fs::write("/proc/sys/kernel/pid_max", processes.to_string());
    Ok(())
}

/// Reads the mount points and their flags, which a change must repeat.
fn mounts(info: &str) -> Vec<(PathBuf, MountFlags)> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(4);
        let (path, options) = (fields.next()?, fields.next()?);
        let flags = options.split(',').map(|option| match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            "nosymfollow" => MountFlags::NOSYMFOLLOW,
            _ => MountFlags::empty(),
        });
        Some((unescape(path).into(), flags.collect()))
    };
    info.lines().filter_map(mount).collect()
}

/// Decodes the octal escapes of spaces, tabs, line breaks and backslashes.
fn unescape(path: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(path.to_owned(), |path, (code, text)| path.replace(code, text))
}

/// Switches the loopback interface on, which is the first one of a new network.
fn bring_up_loopback() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const REQUEST: u16 = 1;
    let up = libc::IFF_UP.cast_unsigned();
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    // struct ifinfomsg: family, type, index, flags, and which flags change.
    message.extend([0; 4]);
    message.extend(1_u32.to_ne_bytes());
    message.extend(up.to_ne_bytes());
    message.extend(up.to_ne_bytes());
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(socket, &message, SendFlags::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_the_flags_that_must_stay() {
        let info = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                    40 22 0:35 / /mnt/my\\040disk rw,nosuid,nodev,noexec - tmpfs tmpfs rw\n";
        let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        assert_eq!(mounts(info), [("/".into(), MountFlags::RELATIME), ("/mnt/my disk".into(), safe)]);
    }
}
