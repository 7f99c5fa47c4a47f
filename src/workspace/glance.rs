//! Reads what a prompt shows of a workspace before each step: the starts of a few files, the front matter of all skills
//! and the paths below a folder, once for the shared tree over the template and once for the user's tree.
//!
//! Both stored trees are queried at once, and the contents that this isolate has cached are not sent again. A
//! glance therefore costs one round trip to the table and few bytes; none while the last one is fresh and this
//! isolate has changed no file since. It reads the stored trees only, without the layers added by
//! [`Workspaces::with_layer`].

use super::skills::{
    FrontMatter, HEAD_CHARS, MAX_FOLDERS, MAX_SKILLS, Skill, SkillError, SkillUsage, folder_of, read_head,
    usage::{self, MAX_USAGE_CHARS},
};
use super::{FileScope, Layer, Stores, Workspaces, layout};
use crate::ports::{
    FileError, Filesystem,
    filesystem::{Content, Entry, File, FileResult, Glance, GlanceResult, Heads, Tree},
    within,
};
use crate::types::{FilePath, PathPrefix, TenantId, Timestamp, TurnId, WorkspaceOwner};
use bytes::Bytes;
use futures::future::try_join_all;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};

/// Maximum number of trees that an isolate caches.
const MAX_CACHED_TREES: usize = 128;
/// Maximum number of bytes that an isolate caches.
const MAX_CACHED_BYTES: usize = 4 << 20;
/// Maximum length of a character in UTF-8, in bytes.
const CHAR_BYTES: u64 = 4;

/// What a glance reads.
pub struct GlanceOptions {
    /// Files whose start is read.
    pub wanted: Vec<FilePath>,
    /// Maximum length of each start, in characters.
    pub max_chars: usize,
    /// Folder below which paths are listed.
    pub folder: PathPrefix,
    /// Maximum number of listed paths of each layer.
    pub limit: usize,
    /// Whether the skills are read, with their usage.
    pub skills: bool,
    /// How long a result is fresh.
    pub fresh: Duration,
    /// Timeout of a query.
    pub timeout: Duration,
}

/// The start of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStart {
    /// List entry of the file.
    pub entry: Entry,
    /// First bytes of the file, at least the requested number of characters.
    pub bytes: Bytes,
}

/// The result of a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The shared files, including those of the template.
    pub shared: LayerView,
    /// The user's own files, including those that hide a shared file.
    pub user: LayerView,
}

impl View {
    /// Returns one layer.
    pub fn layer(&self, layer: Layer) -> &LayerView {
        match layer {
            Layer::User => &self.user,
            Layer::Shared => &self.shared,
        }
    }
}

/// One layer in the result of a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerView {
    /// The requested files that exist.
    pub files: BTreeMap<FilePath, FileStart>,
    /// The first paths below the folder; in the user's layer without those listed for the shared one.
    pub listed: Vec<FilePath>,
    /// Whether there are more paths than `listed` contains.
    pub is_cut: bool,
    /// The skills, sorted by name.
    pub skills: Vec<Skill>,
    /// Whether there are more skills than `skills` contains.
    pub has_more_skills: bool,
    /// The usage of the skills.
    pub usage: SkillUsage,
}

/// The front matter of a `SKILL.md`, read once for all steps.
type Head = Rc<Result<FrontMatter, SkillError>>;

/// The last known state of one tree.
#[derive(Clone, Default)]
struct TreeState {
    files: BTreeMap<FilePath, (Entry, Bytes)>,
    heads: Vec<(Entry, Head)>,
    listed: Vec<FilePath>,
    /// The last query; `None` if there was none.
    query: Option<Query>,
}

/// When a tree was queried.
#[derive(Clone, Copy)]
struct Query {
    at: Timestamp,
    /// The number of changes made through this isolate before it.
    changes: u64,
    failed: bool,
}

/// A step of a turn.
#[derive(Clone, PartialEq, Eq)]
pub struct Step {
    /// The workspace of the session.
    pub workspace: WorkspaceOwner,
    /// The turn.
    pub turn: TurnId,
    /// The number of the step, starting at 0.
    pub step: u32,
}

/// Glances at the same files of any workspace, with a small cache.
pub struct WorkspaceGlance {
    stores: Rc<Stores>,
    template: Rc<dyn Filesystem>,
    options: GlanceOptions,
    /// The folder of the skills.
    skills: PathPrefix,
    /// The file with the usage of the skills, if they are read.
    usage: Option<FilePath>,
    /// The skills of the template, which never changes, once they were read.
    template_skills: RefCell<Option<Rc<Vec<Skill>>>>,
    /// Most recently used first.
    cache: RefCell<VecDeque<(Tree, Rc<TreeState>)>>,
    /// What a hook has read, for the next hooks of the same step.
    kept: RefCell<Option<(Step, Rc<View>)>>,
}

impl Workspaces {
    /// Creates a reader of these files in any workspace.
    pub fn glance(&self, options: GlanceOptions) -> WorkspaceGlance {
        let (stores, template) = (Rc::clone(&self.stores), Rc::clone(&self.template));
        let skills = PathPrefix::parse(layout::SKILLS).unwrap_or_default();
        let usage = options.skills.then(|| usage::path().ok()).flatten();
        WorkspaceGlance {
            stores,
            template,
            options,
            skills,
            usage,
            template_skills: RefCell::default(),
            cache: RefCell::default(),
            kept: RefCell::default(),
        }
    }
}

impl WorkspaceGlance {
    /// Reads the current state, or returns a fresh one.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable, or was when it was last queried, within the same time.
    pub async fn read(&self, workspace: &WorkspaceOwner) -> FileResult<View> {
        let (trees, tenant) = (trees(workspace), &workspace.owner.tenant);
        // Held in local variables, because concurrent glances may evict them from the cache.
        let known: Vec<Rc<TreeState>> = trees.iter().map(|tree| self.cached(tree)).collect();
        let fresh: Option<Vec<Query>> = known.iter().map(|state| self.fresh_query(state)).collect();
        match fresh {
            Some(queries) if queries.iter().any(|query| query.failed) => {
                Err(FileError::Unavailable("the last query failed a moment ago".into()))
            }
            Some(_) => self.view(&known).await,
            None => {
                let query =
                    Query { at: self.stores.clock.now(), changes: self.stores.changes(), failed: false };
                let read = self.query(tenant, &trees, &known, query);
                let states = within(self.stores.clock.as_ref(), self.options.timeout, read).await;
                match states.unwrap_or_else(|unfinished| Err(FileError::Unavailable(unfinished.to_string())))
                {
                    Ok(states) => self.view(&states).await,
                    Err(error) => {
                        // Counted from the failure, because the query may have taken long.
                        let query = Query { at: self.stores.clock.now(), failed: true, ..query };
                        for (tree, state) in trees.into_iter().zip(known) {
                            let state = TreeState { query: Some(query), ..TreeState::clone(&state) };
                            self.update_cache(tree, &Rc::new(state));
                        }
                        Err(error)
                    }
                }
            }
        }
    }

    /// Returns the last query of a tree if its result is fresh.
    fn fresh_query(&self, state: &TreeState) -> Option<Query> {
        let is_fresh = |query: &Query| {
            let age = self.stores.clock.now().since(query.at);
            age < self.options.fresh && query.changes == self.stores.changes()
        };
        state.query.filter(is_fresh)
    }

    async fn query(
        &self,
        tenant: &TenantId,
        trees: &[Tree],
        known: &[Rc<TreeState>],
        query: Query,
    ) -> FileResult<Vec<Rc<TreeState>>> {
        let etag = |(entry, _): &(Entry, _)| entry.etag.clone();
        let known_files: Vec<String> = known
            .iter()
            .flat_map(|state| state.files.values())
            .map(|(entry, _)| entry.etag.clone())
            .collect();
        let known_heads: Vec<String> = known.iter().flat_map(|state| &state.heads).map(etag).collect();
        let GlanceOptions { folder, limit, .. } = &self.options;
        let heads = Heads {
            folder: &self.skills,
            file: layout::SKILL_FILE,
            known: &known_heads,
            max_chars: HEAD_CHARS,
            folders: MAX_FOLDERS,
            // One to see whether there are more, and one for a file in the folder of the drafts.
            limit: MAX_SKILLS + 2,
        };
        let heads = self.options.skills.then_some(heads);
        let mut wanted = self.options.wanted.clone();
        wanted.extend(self.usage.clone());
        let (max_chars, limit) = (self.max_chars(), limit + 1);
        let glance = Glance { wanted: &wanted, known: &known_files, max_chars, folder, limit, heads };
        let scopes: Vec<&str> = trees.iter().map(|tree| tree.scope.as_str()).collect();
        let seen = self.stores.table.glance(tenant, &scopes, &glance).await?;
        let mut states = Vec::with_capacity(trees.len());
        for (tree, GlanceResult { files, heads, listed }) in trees.iter().zip(seen) {
            let files = files.into_iter().map(|(entry, content)| self.start(known, entry, content));
            let files = try_join_all(files).await?.into_iter().map(|file| (file.0.path.clone(), file));
            let files = files.collect();
            let heads = heads
                .into_iter()
                .map(|(entry, start)| head(known, entry, start))
                .collect::<Result<_, _>>()?;
            let state = Rc::new(TreeState { files, heads, listed, query: Some(query) });
            self.update_cache(tree.clone(), &state);
            states.push(state);
        }
        Ok(states)
    }

    /// Returns the maximum length of a file's start, in characters.
    fn max_chars(&self) -> usize {
        let usage = if self.usage.is_some() { MAX_USAGE_CHARS } else { 0 };
        self.options.max_chars.max(usage)
    }

    /// Reads the current state, or the last known one with the error that prevented it.
    pub async fn read_or_last(&self, workspace: &WorkspaceOwner) -> (View, Option<FileError>) {
        match self.read(workspace).await {
            Ok(view) => (view, None),
            Err(error) => (self.last(workspace).await.unwrap_or_default(), Some(error)),
        }
    }

    /// Returns a wanted file of the shared layer, as it was read within this time. Otherwise reads the current state first; if
    /// that fails, returns the last known file with the error.
    pub async fn shared_file(
        &self,
        workspace: &WorkspaceOwner,
        path: &FilePath,
        age: Duration,
    ) -> (Option<FileStart>, Option<FileError>) {
        let [_, shared] = trees(workspace);
        let now = self.stores.clock.now();
        let is_recent = |query: Query| !query.failed && now.since(query.at) < age;
        let error = match self.cached(&shared).query {
            Some(query) if is_recent(query) => None,
            _ => self.read(workspace).await.err(),
        };
        let stored = self.cached(&shared).files.get(path).cloned().filter(|(_, bytes)| !bytes.is_empty());
        let file = match stored {
            Some((entry, bytes)) => Some(FileStart { entry, bytes }),
            None => {
                let file = self.template.read(path).await.ok();
                file.map(|File { entry, bytes }| FileStart { entry, bytes })
            }
        };
        (file, error)
    }

    /// Reads the current state for a step, and keeps it for [`WorkspaceGlance::of_step`]. See
    /// [`WorkspaceGlance::read_or_last`].
    pub async fn read_for_step(&self, step: Step) -> (Rc<View>, Option<FileError>) {
        let (view, error) = self.read_or_last(&step.workspace).await;
        let view = Rc::new(view);
        *self.kept.borrow_mut() = Some((step, Rc::clone(&view)));
        (view, error)
    }

    /// Returns what an earlier hook of the same step has read. Without such a hook, reads the current state.
    pub async fn of_step(&self, step: Step) -> (Rc<View>, Option<FileError>) {
        let kept = self.kept.borrow().as_ref().filter(|(of, _)| *of == step).map(|(_, view)| Rc::clone(view));
        match kept {
            Some(view) => (view, None),
            None => self.read_for_step(step).await,
        }
    }

    /// Returns the last known state; without a cached state, only the template.
    ///
    /// # Errors
    /// Returns an error when the template cannot be read.
    pub async fn last(&self, workspace: &WorkspaceOwner) -> FileResult<View> {
        self.view(&trees(workspace).map(|tree| self.cached(&tree))).await
    }

    /// Returns a file's start: from the query result, from the object store, or from the cache.
    async fn start(
        &self,
        known: &[Rc<TreeState>],
        entry: Entry,
        content: Option<Content>,
    ) -> FileResult<(Entry, Bytes)> {
        let bytes = match content {
            Some(Content::Inline(bytes)) => Some(bytes),
            Some(Content::Blob(key)) => {
                let end = entry.bytes.min(self.max_chars() as u64 * CHAR_BYTES);
                self.stores.blobs.get(&key, Some(0..end)).await?
            }
            None => {
                let files = known.iter().flat_map(|state| state.files.values());
                files.into_iter().find(|(known, _)| known.etag == entry.etag).map(|(_, bytes)| bytes.clone())
            }
        };
        let missing = || FileError::Unavailable("the bytes of a file are missing".into());
        Ok((entry, bytes.ok_or_else(missing)?))
    }

    /// Returns the cached state of a tree, or an empty one.
    fn cached(&self, tree: &Tree) -> Rc<TreeState> {
        let cache = self.cache.borrow();
        cache.iter().find(|(known, _)| known == tree).map(|(_, state)| Rc::clone(state)).unwrap_or_default()
    }

    fn update_cache(&self, tree: Tree, state: &Rc<TreeState>) {
        let mut cache = self.cache.borrow_mut();
        cache.retain(|(known, _)| *known != tree);
        cache.push_front((tree, Rc::clone(state)));
        let mut bytes = 0;
        let fits = |(_, state): &&(Tree, Rc<TreeState>)| {
            bytes += state.files.values().map(|(_, bytes)| bytes.len()).sum::<usize>();
            bytes += state.heads.iter().map(|(entry, head)| cached_bytes(entry, head)).sum::<usize>();
            bytes <= MAX_CACHED_BYTES
        };
        let fit = cache.iter().take(MAX_CACHED_TREES).take_while(fits).count();
        cache.truncate(fit);
    }

    /// Returns the layers: the user's tree, and the shared tree over the template.
    async fn view(&self, states: &[Rc<TreeState>]) -> FileResult<View> {
        let GlanceOptions { wanted, folder, limit, .. } = &self.options;
        let mut files = BTreeMap::new();
        for file in self.template.read_many(wanted).await? {
            files.insert(file.entry.path.clone(), FileStart { entry: file.entry, bytes: file.bytes });
        }
        let listed = self.template.list(folder, None, limit + 1).await?.into_iter().map(|entry| entry.path);
        let listed = listed.collect();
        let skills = self.template_skills().await?;
        let template = LayerView { files, listed, skills: Vec::clone(&skills), ..LayerView::default() };
        let none = TreeState::default();
        let [user, shared] = [states.first(), states.get(1)].map(|state| state.map_or(&none, |state| state));
        let shared = self.layer(template, shared, Layer::Shared);
        let mut user = self.layer(LayerView::default(), user, Layer::User);
        user.listed.retain(|path| !shared.listed.contains(path));
        Ok(View { shared, user })
    }

    /// Returns the skills of the template.
    async fn template_skills(&self) -> FileResult<Rc<Vec<Skill>>> {
        if !self.options.skills {
            return Ok(Rc::default());
        }
        if let Some(skills) = self.template_skills.borrow().clone() {
            return Ok(skills);
        }
        let mut skills = Vec::new();
        for entry in self.template.list(&self.skills, None, usize::MAX).await? {
            if let Some(name) = folder_of(&entry.path) {
                let file = self.template.read(&entry.path).await?;
                let skill = Skill::of_file(name, Layer::Shared, &file);
                // It is part of the agent's definition, so it does not age.
                skills.push(Skill { is_learned: false, ..skill });
            }
        }
        let skills = Rc::new(skills);
        self.template_skills.replace(Some(Rc::clone(&skills)));
        Ok(skills)
    }

    /// Returns a tree over the layer below it.
    fn layer(&self, below: LayerView, state: &TreeState, layer: Layer) -> LayerView {
        let mut files = below.files;
        for (path, (entry, bytes)) in
            state.files.iter().filter(|(path, _)| self.options.wanted.contains(path))
        {
            // A file hides the one below, unless it is empty.
            if !bytes.is_empty() || !files.contains_key(path) {
                files.insert(path.clone(), FileStart { entry: entry.clone(), bytes: bytes.clone() });
            }
        }
        let listed: BTreeSet<FilePath> =
            below.listed.into_iter().chain(state.listed.iter().cloned()).collect();
        let is_cut = listed.len() > self.options.limit;
        let listed = listed.into_iter().take(self.options.limit).collect();
        let (skills, has_more_skills) = self.skills(below.skills, state, layer);
        let usage = self.usage.as_ref().and_then(|path| state.files.get(path));
        let usage = usage.map(|(entry, bytes)| SkillUsage::read(&entry.etag, bytes)).unwrap_or_default();
        LayerView { files, listed, is_cut, skills, has_more_skills, usage }
    }

    /// Returns the skills of a tree over those below it, and whether there are more.
    fn skills(&self, below: Vec<Skill>, state: &TreeState, layer: Layer) -> (Vec<Skill>, bool) {
        let mut skills: BTreeMap<String, Skill> =
            below.into_iter().map(|skill| (skill.name.clone(), skill)).collect();
        for (entry, head) in state.heads.iter().filter(|(entry, _)| entry.bytes > 0) {
            if let Some(name) = folder_of(&entry.path) {
                skills.insert(name.to_owned(), Skill::new(name, layer, &entry.etag, head));
            }
        }
        // A requested file may be that of a skill, too.
        for (entry, start) in state.files.values().filter(|(entry, _)| self.options.skills && entry.bytes > 0)
        {
            if let Some(name) = folder_of(&entry.path) {
                let head = read_head(entry, start);
                skills.insert(name.to_owned(), Skill::new(name, layer, &entry.etag, &head));
            }
        }
        let has_more = skills.len() > MAX_SKILLS;
        (skills.into_values().take(MAX_SKILLS).collect(), has_more)
    }
}

/// Returns the front matter of a skill: from its start, or as it is known.
fn head(known: &[Rc<TreeState>], entry: Entry, start: Option<Bytes>) -> FileResult<(Entry, Head)> {
    let head = match start {
        Some(start) => Rc::new(read_head(&entry, &start)),
        None => {
            let mut heads = known.iter().flat_map(|state| &state.heads);
            let same = heads.find(|(known, _)| known.etag == entry.etag).map(|(_, head)| Rc::clone(head));
            same.ok_or_else(|| FileError::Unavailable("the start of a skill is missing".into()))?
        }
    };
    Ok((entry, head))
}

/// Returns about how many bytes a head takes in the cache.
fn cached_bytes(entry: &Entry, head: &Head) -> usize {
    entry.path.as_str().len() + entry.etag.len() + head.as_ref().as_ref().map_or(0, FrontMatter::bytes)
}

/// Returns the tree of the user or of the session, and the shared tree.
fn trees(workspace: &WorkspaceOwner) -> [Tree; 2] {
    let shared = FileScope::Agent { agent: workspace.owner.agent.clone() };
    [FileScope::of_workspace(workspace), shared].map(|scope| scope.of(&workspace.owner.tenant))
}
