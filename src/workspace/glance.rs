//! What a model is shown of a workspace before each of its steps: the start of a few files, and the
//! paths below a folder, of the user's tree above the shared one above the template.
//!
//! Both trees are asked at once, and what has not changed since this isolate saw it is not sent again. So
//! a glance costs one round trip to the table, and few bytes. It looks at what is kept: layers that
//! [`Workspaces::with_layer`] adds do not show in it.

use super::{FileScope, Layer, Stores, Workspaces};
use crate::ports::{
    FileError, Filesystem,
    filesystem::{Content, Entry, FileResult, Glance, Tree},
};
use crate::types::{FilePath, PathPrefix, TenantId};
use bytes::Bytes;
use futures::future::try_join_all;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

/// Trees that an isolate remembers.
const MAX_TREES: usize = 128;
/// Bytes of files that it remembers.
const MAX_REMEMBERED: usize = 4 << 20;
/// Most bytes of a character.
const CHAR_BYTES: u64 = 4;

/// What to look at.
pub struct Look {
    /// Files whose start is wanted.
    pub wanted: Vec<FilePath>,
    /// How much of each, in characters.
    pub max_chars: usize,
    /// The folder below which files are listed.
    pub folder: PathPrefix,
    /// How many of them, at most.
    pub limit: usize,
}

/// The start of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// What lists show of it.
    pub entry: Entry,
    /// Its first bytes: what was asked for, or a little more.
    pub bytes: Bytes,
    /// Whose it is.
    pub layer: Layer,
}

/// What there is to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Those of the wanted files that are there.
    pub files: BTreeMap<FilePath, Start>,
    /// The paths below the folder, the first of them.
    pub listed: Vec<FilePath>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// One tree, as it was seen last.
#[derive(Default)]
struct Sight {
    files: BTreeMap<FilePath, (Entry, Bytes)>,
    listed: Vec<FilePath>,
}

/// Looks at workspaces, always at the same files, and remembers a little.
pub struct Glances {
    stores: Rc<Stores>,
    template: Rc<dyn Filesystem>,
    look: Look,
    /// What was seen last comes first.
    remembered: RefCell<VecDeque<(Tree, Rc<Sight>)>>,
}

impl Workspaces {
    /// Looks at these files of whatever workspace is asked for.
    pub fn glances(&self, look: Look) -> Glances {
        let (stores, template) = (Rc::clone(&self.stores), Rc::clone(&self.template));
        Glances { stores, template, look, remembered: RefCell::default() }
    }
}

impl Glances {
    /// What there is to see now.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn look(&self, tenant: &TenantId, agent: &str, user: &str) -> FileResult<View> {
        let trees = trees(tenant, agent, user);
        // Held on to: while the answer is on its way others may push them out.
        let known: Vec<Rc<Sight>> = trees.iter().map(|tree| self.remembered(tree)).collect();
        let etags: Vec<String> = known
            .iter()
            .flat_map(|sight| sight.files.values())
            .map(|(entry, _)| entry.etag.clone())
            .collect();
        let Look { wanted, max_chars, folder, limit } = &self.look;
        let glance = Glance { wanted, known: &etags, max_chars: *max_chars, folder, limit: limit + 1 };
        let scopes: Vec<&str> = trees.iter().map(|tree| tree.scope.as_str()).collect();
        let seen = self.stores.table.glance(tenant, &scopes, &glance).await?;
        let mut sights = Vec::with_capacity(trees.len());
        for (tree, glimpse) in trees.into_iter().zip(seen) {
            let files = glimpse.files.into_iter().map(|(entry, content)| self.start(&known, entry, content));
            let files = try_join_all(files).await?.into_iter().map(|file| (file.0.path.clone(), file));
            let sight = Rc::new(Sight { files: files.collect(), listed: glimpse.listed });
            self.remember(tree, &sight);
            sights.push(sight);
        }
        self.view(&sights).await
    }

    /// What was there to see last, if this isolate has looked before.
    ///
    /// # Errors
    /// When the template cannot be read.
    pub async fn last(&self, tenant: &TenantId, agent: &str, user: &str) -> FileResult<View> {
        self.view(&trees(tenant, agent, user).map(|tree| self.remembered(&tree))).await
    }

    /// A file's start: as it came, from the object store, or as it is remembered.
    async fn start(
        &self,
        known: &[Rc<Sight>],
        entry: Entry,
        content: Option<Content>,
    ) -> FileResult<(Entry, Bytes)> {
        let bytes = match content {
            Some(Content::Inline(bytes)) => Some(bytes),
            Some(Content::Blob(key)) => {
                let end = entry.bytes.min(self.look.max_chars as u64 * CHAR_BYTES);
                self.stores.blobs.get(&key, Some(0..end)).await.map_err(FileError::Unavailable)?
            }
            None => {
                let files = known.iter().flat_map(|sight| sight.files.values());
                files.into_iter().find(|(known, _)| known.etag == entry.etag).map(|(_, bytes)| bytes.clone())
            }
        };
        let missing = || FileError::Unavailable("the bytes of a file are missing".into());
        Ok((entry, bytes.ok_or_else(missing)?))
    }

    /// A tree as it was seen last; as an empty one if it was not.
    fn remembered(&self, tree: &Tree) -> Rc<Sight> {
        let remembered = self.remembered.borrow();
        remembered
            .iter()
            .find(|(known, _)| known == tree)
            .map(|(_, sight)| Rc::clone(sight))
            .unwrap_or_default()
    }

    fn remember(&self, tree: Tree, sight: &Rc<Sight>) {
        let mut remembered = self.remembered.borrow_mut();
        remembered.retain(|(known, _)| *known != tree);
        remembered.push_front((tree, Rc::clone(sight)));
        let mut bytes = 0;
        let fits = |(_, sight): &&(Tree, Rc<Sight>)| {
            bytes += sight.files.values().map(|(_, bytes)| bytes.len()).sum::<usize>();
            bytes <= MAX_REMEMBERED
        };
        let fit = remembered.iter().take(MAX_TREES).take_while(fits).count();
        remembered.truncate(fit);
    }

    /// The trees, the user's first, one above the other and both above the template.
    async fn view(&self, sights: &[Rc<Sight>]) -> FileResult<View> {
        let mut files = BTreeMap::new();
        let mut listed = BTreeSet::new();
        for file in self.template.read_many(&self.look.wanted).await? {
            let path = file.entry.path.clone();
            files.insert(path, Start { entry: file.entry, bytes: file.bytes, layer: Layer::Shared });
        }
        let Look { folder, limit, .. } = &self.look;
        listed.extend(self.template.list(folder, None, limit + 1).await?.into_iter().map(|entry| entry.path));
        // The user's hides what is below, unless it is empty.
        for (sight, layer) in sights.iter().zip([Layer::User, Layer::Shared]).rev() {
            listed.extend(sight.listed.iter().cloned());
            for (path, (entry, bytes)) in &sight.files {
                if !bytes.is_empty() || !files.contains_key(path) {
                    files.insert(path.clone(), Start { entry: entry.clone(), bytes: bytes.clone(), layer });
                }
            }
        }
        let is_cut = listed.len() > *limit;
        Ok(View { files, listed: listed.into_iter().take(*limit).collect(), is_cut })
    }
}

/// The user's tree, and the one below it.
fn trees(tenant: &TenantId, agent: &str, user: &str) -> [Tree; 2] {
    let (agent, user) = (agent.to_owned(), user.to_owned());
    [FileScope::User { agent: agent.clone(), user }, FileScope::Agent { agent }].map(|scope| scope.of(tenant))
}
