//! Profiles: servers with their keys. `config.toml` has the profiles; the keys are in the keyring of the operating
//! system, or in `keys.toml`, which only its owner can read.

use crate::error::{Error, InFile as _, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use url::Url;

/// The server of a machine that runs `make dev`.
pub const DEFAULT_URL: &str = "http://localhost:8787";
/// The name of the profile that `login` writes without `--profile`.
pub const DEFAULT_PROFILE: &str = "default";
/// The service in the keyring of the operating system.
const SERVICE: &str = "agentctl";

/// The file `config.toml`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Config {
    /// The profile of commands without `--profile`.
    pub default: Option<String>,
    /// The profiles by name.
    pub profiles: BTreeMap<String, Profile>,
}

/// A server, and who the caller is there.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Profile {
    /// The server's URL.
    pub url: String,
    /// The user, if the key is one of a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where the key is.
    pub key: KeyStore,
}

/// Where a key is stored.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KeyStore {
    /// The keyring of the operating system.
    Keyring,
    /// The file `keys.toml`.
    File,
}

/// What a command needs to reach a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// The server's URL.
    pub url: String,
    /// The key or token.
    pub key: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The profile that this comes from.
    pub profile: Option<String>,
}

/// What the caller chose for one command.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--profile`.
    pub profile: Option<String>,
    /// `--url`.
    pub url: Option<String>,
    /// `--user`.
    pub user: Option<String>,
    /// `EDGE_HARNESS_URL`.
    pub env_url: Option<String>,
    /// `EDGE_HARNESS_KEY`.
    pub env_key: Option<String>,
}

/// The folder of the files.
pub struct Profiles {
    folder: PathBuf,
}

impl Profiles {
    /// Uses the configuration folder of the user.
    ///
    /// # Errors
    /// A user without a home folder.
    pub fn open() -> Result<Self> {
        let folder = dirs::config_dir().ok_or_else(|| Error::Usage("HOME is not set".into()))?;
        Ok(Self { folder: folder.join("edge-harness") })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the configuration; without a file, there are no profiles.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn config(&self) -> Result<Config> {
        self.read("config.toml")
    }

    /// Returns the access that the flags, the environment and the profiles give, in this order.
    ///
    /// # Errors
    /// An unknown profile, and a store that cannot be read.
    pub fn access(&self, choice: Choice) -> Result<Access> {
        let config = self.config()?;
        // The environment describes a server of its own, so the default profile does not apply beside it.
        let is_default = choice.env_url.is_none() && choice.env_key.is_none();
        let name = choice.profile.clone().or(if is_default { config.default.clone() } else { None });
        let Some(name) = name else {
            let url = choice.url.or(choice.env_url).unwrap_or_else(|| DEFAULT_URL.into());
            return Ok(Access { url, key: choice.env_key, user: choice.user, profile: None });
        };
        let Some(profile) = config.profiles.get(&name).cloned() else {
            return Err(Error::Usage(format!(
                "there is no profile {name:?}; create it: agentctl login --profile {name}"
            )));
        };
        let url = choice.url.unwrap_or_else(|| profile.url.clone());
        // The key of one server is never sent to another.
        let key =
            if same_origin(&url, &profile.url) { self.key(&name, profile.key)? } else { choice.env_key };
        Ok(Access { url, key, user: choice.user.or(profile.user), profile: Some(name) })
    }

    /// Stores a profile and its key, and makes it the default if there is none. Returns where the key is.
    ///
    /// # Errors
    /// A file that cannot be written, or a keyring that the caller requires and that is not available.
    pub fn store(
        &self,
        name: &str,
        url: &str,
        user: Option<String>,
        key: &str,
        wanted: Option<KeyStore>,
    ) -> Result<KeyStore> {
        let store = match wanted {
            Some(KeyStore::File) => KeyStore::File,
            wanted => match keyring::Entry::new(SERVICE, name).and_then(|entry| entry.set_password(key)) {
                Ok(()) => KeyStore::Keyring,
                Err(error) if wanted.is_some() => return Err(Error::Io(io::Error::other(error))),
                Err(_) => KeyStore::File,
            },
        };
        let mut keys: BTreeMap<String, String> = self.read("keys.toml")?;
        let is_changed = match store {
            KeyStore::File => keys.insert(name.to_owned(), key.to_owned()).as_deref() != Some(key),
            KeyStore::Keyring => keys.remove(name).is_some(),
        };
        if is_changed {
            self.write("keys.toml", &keys)?;
        }
        let mut config = self.config()?;
        let old = config.profiles.get(name).map(|profile| profile.key);
        if (old, store) == (Some(KeyStore::Keyring), KeyStore::File) {
            // The old key would stay in a keyring that cannot be opened now; the new one is stored all the same.
            let _ = forget(name);
        }
        config.profiles.insert(name.to_owned(), Profile { url: url.to_owned(), user, key: store });
        config.default.get_or_insert_with(|| name.to_owned());
        self.write("config.toml", &config)?;
        Ok(store)
    }

    /// Makes a profile the default.
    ///
    /// # Errors
    /// An unknown profile, and a file that cannot be written.
    pub fn choose(&self, name: &str) -> Result<()> {
        let mut config = self.config()?;
        if !config.profiles.contains_key(name) {
            return Err(Error::Usage(format!("there is no profile {name:?}")));
        }
        config.default = Some(name.to_owned());
        self.write("config.toml", &config)
    }

    /// Removes a profile and its key.
    ///
    /// # Errors
    /// An unknown profile, and a store that cannot be written.
    pub fn remove(&self, name: &str) -> Result<()> {
        let mut config = self.config()?;
        let Some(profile) = config.profiles.remove(name) else {
            return Err(Error::Usage(format!("there is no profile {name:?}")));
        };
        if config.default.as_deref() == Some(name) {
            config.default = None;
        }
        match profile.key {
            KeyStore::Keyring => forget(name)?,
            KeyStore::File => {
                let mut keys: BTreeMap<String, String> = self.read("keys.toml")?;
                keys.remove(name);
                self.write("keys.toml", &keys)?;
            }
        }
        self.write("config.toml", &config)
    }

    fn key(&self, name: &str, store: KeyStore) -> Result<Option<String>> {
        match store {
            KeyStore::Keyring => {
                match keyring::Entry::new(SERVICE, name).and_then(|entry| entry.get_password()) {
                    Ok(key) => Ok(Some(key)),
                    Err(keyring::Error::NoEntry) => Ok(None),
                    Err(error) => Err(Error::Io(io::Error::other(format!("the keyring: {error}")))),
                }
            }
            KeyStore::File => Ok(self.read::<BTreeMap<String, String>>("keys.toml")?.remove(name)),
        }
    }

    fn read<T: Default + for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T> {
        let path = self.folder.join(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(source) => return Err(source).in_file(&path),
        };
        toml::from_str(&text).map_err(|e| Error::Usage(format!("{}: {}", path.display(), e.message())))
    }

    /// Replaces a file at once. Temporary files, and so the new one, have mode 0600.
    fn write(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(&self.folder).in_file(&self.folder)?;
        let text = toml::to_string(value).map_err(|e| Error::Io(io::Error::other(e)))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).in_file(&self.folder)?;
        file.write_all(text.as_bytes()).in_file(&path)?;
        file.persist(&path).map_err(|e| e.error).in_file(&path)?;
        Ok(())
    }
}

/// Removes a key from the keyring. One that is gone already is as good as removed.
fn forget(name: &str) -> Result<()> {
    match keyring::Entry::new(SERVICE, name).and_then(|entry| entry.delete_credential()) {
        Ok(()) | Err(keyring::Error::NoEntry) => Ok(()),
        Err(error) => Err(Error::Io(io::Error::other(error))),
    }
}

fn same_origin(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin() == other.origin(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles() -> (tempfile::TempDir, Profiles) {
        let folder = tempfile::tempdir().unwrap();
        let profiles = Profiles { folder: folder.path().join("edge-harness") };
        profiles
            .store("work", "https://work.example", Some("ann".into()), "k-work", Some(KeyStore::File))
            .unwrap();
        profiles.store("home", "http://localhost:8787", None, "k-home", Some(KeyStore::File)).unwrap();
        (folder, profiles)
    }

    fn access(url: &str, key: Option<&str>, user: Option<&str>, profile: Option<&str>) -> Access {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Access { url: url.into(), key: owned(key), user: owned(user), profile: owned(profile) }
    }

    #[test]
    fn the_first_profile_is_the_default_and_flags_come_first() {
        let (_folder, profiles) = profiles();
        let of = |choice| profiles.access(choice).unwrap();
        let work = access("https://work.example", Some("k-work"), Some("ann"), Some("work"));
        assert_eq!(of(Choice::default()), work);
        let home = Choice { profile: Some("home".into()), user: Some("bob".into()), ..Choice::default() };
        assert_eq!(of(home), access("http://localhost:8787", Some("k-home"), Some("bob"), Some("home")));
        profiles.choose("home").unwrap();
        assert_eq!(of(Choice::default()).profile.as_deref(), Some("home"));
        profiles.remove("home").unwrap();
        assert_eq!(of(Choice::default()), access(DEFAULT_URL, None, None, None));
    }

    #[test]
    fn the_environment_replaces_the_default_profile() {
        let (_folder, profiles) = profiles();
        let choice = Choice { env_key: Some("k-env".into()), ..Choice::default() };
        assert_eq!(profiles.access(choice.clone()).unwrap(), access(DEFAULT_URL, Some("k-env"), None, None));
        let chosen = Choice { profile: Some("work".into()), ..choice };
        assert_eq!(profiles.access(chosen).unwrap().key.as_deref(), Some("k-work"));
    }

    #[test]
    fn a_key_is_sent_to_its_own_server_only() {
        let (_folder, profiles) = profiles();
        let elsewhere = Choice { url: Some("https://evil.example".into()), ..Choice::default() };
        assert_eq!(profiles.access(elsewhere).unwrap().key, None);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_keys() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_folder, profiles) = profiles();
        let mode = fs::metadata(profiles.folder.join("keys.toml")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!fs::read_to_string(profiles.folder.join("config.toml")).unwrap().contains("k-work"));
    }

    #[test]
    fn an_unknown_profile_is_an_error() {
        let (_folder, profiles) = profiles();
        let choice = Choice { profile: Some("nope".into()), ..Choice::default() };
        assert!(matches!(profiles.access(choice), Err(Error::Usage(_))));
    }
}
