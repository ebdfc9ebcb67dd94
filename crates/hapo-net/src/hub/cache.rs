//! Where things of a repository are: in the hub's addresses, and in the cache that is shared with `huggingface_hub`.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::hub::id::RepoId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepoKind {
    Model,
    Dataset,
}

#[derive(Clone, Debug)]
pub(crate) struct CachedRepo {
    kind: RepoKind,
    id: String,
    revision: String,
    cache: PathBuf,
}

impl CachedRepo {
    pub(crate) fn new(cache: PathBuf, id: &RepoId, kind: RepoKind) -> Self {
        Self { kind, id: id.id.clone(), revision: id.revision.clone(), cache }
    }

    /// `models` or `datasets`.
    fn plural(&self) -> &'static str {
        match self.kind {
            RepoKind::Model => "models",
            RepoKind::Dataset => "datasets",
        }
    }

    /// The path of its pages: `OWNER/NAME`, for a data set below `datasets`.
    pub(crate) fn url(&self) -> String {
        match self.kind {
            RepoKind::Model => self.id.clone(),
            RepoKind::Dataset => format!("datasets/{}", self.id),
        }
    }

    pub(crate) fn api_url(&self) -> String {
        let revision = self.revision.replace('/', "%2F");
        format!("{}/{}/revision/{revision}", self.plural(), self.id)
    }

    /// `models--OWNER--NAME`.
    pub(crate) fn folder_name(&self) -> String {
        format!("{}--{}", self.plural(), self.id.replace('/', "--"))
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.cache.join(self.folder_name())
    }

    pub(crate) fn revision_path(&self) -> PathBuf {
        self.folder().join("refs").join(&self.revision)
    }

    pub(crate) fn blob_path(&self, etag: &str) -> PathBuf {
        self.folder().join("blobs").join(etag)
    }

    /// The folder of a commit, whose files lead to blobs.
    pub(crate) fn snapshot_path(&self, commit: &str) -> PathBuf {
        self.folder().join("snapshots").join(commit)
    }

    /// Our own note of a commit's data files. `huggingface_hub` looks at no folder of that name.
    pub(crate) fn listing_path(&self, commit: &str) -> PathBuf {
        self.folder().join(".listings").join(commit)
    }

    /// Notes the revision's commit. A revision may be a path.
    pub(crate) fn write_revision(&self, commit: &str) -> io::Result<()> {
        let path = self.revision_path();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `huggingface_hub` names them.
    #[test]
    fn names_are_those_of_the_shared_cache() {
        let id = RepoId { id: "owner/name".to_owned(), revision: "refs/pr/7".to_owned() };
        let repo = |kind| CachedRepo::new(PathBuf::from("/hub"), &id, kind);
        let model = repo(RepoKind::Model);
        assert_eq!(model.url(), "owner/name");
        assert_eq!(model.api_url(), "models/owner/name/revision/refs%2Fpr%2F7");
        assert_eq!(model.revision_path(), PathBuf::from("/hub/models--owner--name/refs/refs/pr/7"));
        assert_eq!(model.blob_path("ab"), PathBuf::from("/hub/models--owner--name/blobs/ab"));
        let dataset = repo(RepoKind::Dataset);
        assert_eq!(dataset.url(), "datasets/owner/name");
        assert_eq!(dataset.api_url(), "datasets/owner/name/revision/refs%2Fpr%2F7");
        assert_eq!(
            dataset.snapshot_path("c"),
            PathBuf::from("/hub/datasets--owner--name/snapshots/c")
        );
    }
}
