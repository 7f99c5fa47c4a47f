//! Finds out what the sandbox can promise on this machine, by trying it.

use super::{
    job::{End, Job, Limits, Reach, Sandbox, Work},
    machine::execute,
    output::Output,
    root::Root,
    sandbox::Holes,
    tool_error::ToolError,
};
use std::{fs, path::Path, time::Duration};

/// What the sandbox of this machine is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The sandbox, if one can be set up.
    pub sandbox: Sandbox,
    /// What it does not prevent, and must.
    pub missing: Vec<&'static str>,
    /// What it does not do, without which it is still worth its name.
    pub weaker: Vec<&'static str>,
}

const WITHOUT_NAMESPACES: &[&str] = &[
    "commands have no network of their own: local sockets fail, too",
    "commands have no /proc of their own, and only its general files",
];

/// Tries the best sandbox first.
///
/// # Errors
/// The trial itself fails.
pub async fn check() -> Result<Check, ToolError> {
    let mut reason = String::new();
    for sandbox in [Sandbox { namespaces: true }, Sandbox { namespaces: false }] {
        match attempt(sandbox).await? {
            Ok(holes) => return Ok(judge(sandbox, holes)),
            Err(error) => reason = error,
        }
    }
    Err(ToolError::Other(format!(
        "the sandbox cannot be set up on this machine: {reason}. Use a newer kernel, or start with --no-sandbox to run \
         commands without protection"
    )))
}

fn judge(sandbox: Sandbox, holes: Holes) -> Check {
    let Holes { reads, changes, modes, signals, network, processes } = holes;
    let found = |holes: &[(bool, &'static str)]| -> Vec<&'static str> {
        holes.iter().filter(|(is_open, _)| *is_open).map(|(_, what)| *what).collect()
    };
    let missing = found(&[
        (reads, "read files outside of the folder"),
        (changes, "change files outside of the folder"),
        (signals, "send signals to processes outside"),
        (network, "use the network"),
    ]);
    let mut weaker = found(&[
        (modes, "commands can change the modes and times of the user's files outside of the folder"),
        (processes, "a command can start many processes before they are ended, and slow this machine down"),
    ]);
    if !sandbox.namespaces {
        weaker.extend(WITHOUT_NAMESPACES);
    }
    Check { sandbox, missing, weaker }
}

/// Runs the probe in a sandbox; `Err` says why the sandbox cannot be set up.
async fn attempt(sandbox: Sandbox) -> Result<Result<Holes, String>, ToolError> {
    let [root, readable, hidden] = [tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?];
    let file = |folder: &Path| folder.join("file");
    fs::write(file(readable.path()), "x")?;
    fs::write(file(hidden.path()), "x")?;
    let job = Job {
        root: root.path().to_owned(),
        reach: Reach { system: true, read: vec![readable.path().to_owned()], ..Reach::default() },
        sandbox: Some(sandbox),
        limits: Limits { time: Duration::from_secs(10), memory: 256 << 20, processes: 64 },
        work: Work::Probe {
            readable: file(readable.path()),
            hidden: file(hidden.path()),
            process: std::process::id(),
        },
    };
    let folder = Root::open(root.path())?;
    let mut output = Output::new(&folder, "probe");
    let end = execute(&job, Vec::new(), &mut output, std::future::pending(), |_| ()).await?;
    Ok(match end {
        End::Exit(0) => Ok(serde_json::from_str(&output.finish())?),
        End::Failed(error) => Err(error),
        other => Err(format!("{other:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Sandbox = Sandbox { namespaces: true };

    #[test]
    fn a_sandbox_without_holes_misses_nothing() {
        let without_namespaces = Sandbox { namespaces: false };
        assert_eq!(
            judge(OWN, Holes::default()),
            Check { sandbox: OWN, missing: Vec::new(), weaker: Vec::new() }
        );
        let weaker = WITHOUT_NAMESPACES.to_vec();
        let expected = Check { sandbox: without_namespaces, missing: Vec::new(), weaker };
        assert_eq!(judge(without_namespaces, Holes::default()), expected);
    }

    #[test]
    fn each_hole_is_named() {
        for (holes, what) in [
            (Holes { reads: true, ..Holes::default() }, "read files outside of the folder"),
            (Holes { changes: true, ..Holes::default() }, "change files outside of the folder"),
            (Holes { signals: true, ..Holes::default() }, "send signals to processes outside"),
            (Holes { network: true, ..Holes::default() }, "use the network"),
        ] {
            assert_eq!(judge(OWN, holes), Check { sandbox: OWN, missing: vec![what], weaker: Vec::new() });
        }
        for (holes, what) in [
            (Holes { modes: true, ..Holes::default() }, "the modes and times"),
            (Holes { processes: true, ..Holes::default() }, "many processes"),
        ] {
            let found = judge(OWN, holes);
            assert!(found.missing.is_empty() && found.weaker.len() == 1, "{found:?}");
            assert!(found.weaker[0].contains(what), "{found:?}");
        }
    }
}
