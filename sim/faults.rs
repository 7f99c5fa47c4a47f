//! Planted defects of the core, which the simulator must find.
//!
//! `faults.toml` lists them. The core itself contains none: they are built into a copy of the sources, where the
//! environment variable `FAULT` activates one of them. Each change of a defect turns `original` into
//! `if active { replacement } else { original }`, so that one build has all of them.

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// What the copy consists of.
const SOURCES: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "docs/openapi.json", "src", "sim", "worker", "bench", "cli"];
/// The module of the copied core that the changes use.
const SWITCH: &str = "//! The active defect.

use std::{env, sync::LazyLock};

static ACTIVE: LazyLock<Option<String>> = LazyLock::new(|| env::var(\"FAULT\").ok());

/// Returns whether this defect is active.
pub fn active(name: &str) -> bool {
    ACTIVE.as_deref() == Some(name)
}
";

/// A planted defect.
#[derive(Deserialize)]
pub struct Fault {
    pub name: String,
    /// What the core does wrong.
    pub what: String,
    changes: Vec<Change>,
}

/// A change of one file.
#[derive(Deserialize)]
struct Change {
    /// The path under `src/`.
    file: PathBuf,
    /// The exact text of an expression or of statements. It occurs once.
    original: String,
    /// What runs instead while the defect is active.
    replacement: String,
}

/// Returns all planted defects.
///
/// # Errors
/// If `faults.toml` is malformed.
pub fn all() -> io::Result<Vec<Fault>> {
    #[derive(Deserialize)]
    struct Table {
        fault: Vec<Fault>,
    }
    let table: Table = toml::from_str(include_str!("faults.toml")).map_err(io::Error::other)?;
    Ok(table.fault)
}

/// Text files by their paths.
type Files = BTreeMap<PathBuf, String>;

/// Returns the sources with all defects built in.
///
/// # Errors
/// If a file cannot be read, or an original text does not occur exactly once.
pub fn sources() -> io::Result<Files> {
    let mut files = Files::new();
    for source in SOURCES {
        read(&root(), Path::new(source), &mut files)?;
    }
    for Fault { name, changes, .. } in all()? {
        for Change { file, original, replacement } in changes {
            let text = files.entry(Path::new("src").join(&file)).or_default();
            let count = text.matches(&original).count();
            if count != 1 {
                let place = file.display();
                return Err(io::Error::other(format!(
                    "{name}: found {count} times in src/{place}: {original}"
                )));
            }
            let active = format!("crate::fault::active(\"{name}\")");
            let changed = format!("if {active} {{ {replacement} }} else {{ {original} }}");
            *text = text.replacen(&original, &changed, 1);
        }
    }
    files.entry("src/lib.rs".into()).or_default().push_str("pub mod fault;\n");
    files.insert("src/fault.rs".into(), SWITCH.into());
    Ok(files)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Adds a file, or all files of a folder.
fn read(root: &Path, path: &Path, files: &mut Files) -> io::Result<()> {
    let from = root.join(path);
    if !from.is_dir() {
        files.insert(path.into(), fs::read_to_string(from)?);
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        read(root, &path.join(entry?.file_name()), files)?;
    }
    Ok(())
}

/// Builds the copy in `target/faults/` and returns its simulator.
///
/// # Errors
/// If the copy cannot be made or does not compile.
pub fn build() -> io::Result<PathBuf> {
    let (copy, sources) = (root().join("target/faults"), sources()?);
    // Of files that were renamed, the copy has the old ones.
    let mut before = Files::new();
    for source in SOURCES.iter().filter(|source| copy.join(source).exists()) {
        read(&copy, Path::new(source), &mut before)?;
    }
    for path in before.keys().filter(|path| !sources.contains_key(*path)) {
        fs::remove_file(copy.join(path))?;
    }
    for (path, text) in sources {
        let path = copy.join(path);
        // An equal file keeps its time, so that Cargo does not compile it again.
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(&copy))?;
        fs::write(path, text)?;
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--profile", "sim", "-p", "edge-harness-sim", "--bin", "sim"]);
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", "target");
    match cargo.status()?.success() {
        true => Ok(copy.join("target/sim/sim")),
        false => Err(io::Error::other("the sources with the planted defects do not compile")),
    }
}

impl Fault {
    /// Plays 8,000 seeds with this defect, and returns the first finding.
    ///
    /// # Errors
    /// If the simulator does not start.
    pub fn find(&self, simulator: &Path) -> io::Result<Option<String>> {
        let mut sim = Command::new(simulator);
        let output = sim.args(["--seeds", "8000", "--from", "1000"]).env("FAULT", &self.name).output()?;
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.lines().find(|line| line.starts_with("seed ")).map(str::to_owned))
    }
}
