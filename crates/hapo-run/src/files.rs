//! Files that are either complete or absent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hapo_core::{Refusal, found_at};

/// Writes a file under a temporary name, flushes it to the disk, compares its length and renames it. A link to a file
/// stays a link; a device or a pipe, such as `/dev/null`, is written into. Where the disk refuses, the file stays.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let write = |file: &mut Contents| file.write_all(bytes).map_err(Refusal::io("write", path));
    write_atomically_with(path, write)
}

/// [`write_atomically`] with contents written by `fill`.
pub fn write_atomically_with<E: From<Refusal>>(
    path: &Path,
    fill: impl FnOnce(&mut Contents) -> Result<(), E>,
) -> Result<(), E> {
    let (new, mut file) = NewFile::create(path).map_err(Refusal::io("write", path))?;
    fill(&mut file)?;
    Ok(new.finish().map_err(Refusal::io("write", path))?)
}

/// A file that appears under its name when it is finished. Before, what was there stays.
#[derive(Debug)]
pub struct NewFile {
    /// The names that it has until then and afterwards; nothing for a device.
    names: Option<(PathBuf, PathBuf)>,
    written: Arc<AtomicU64>,
}

/// The contents of a [`NewFile`], whose bytes are counted.
#[derive(Debug)]
pub struct Contents {
    file: File,
    written: Arc<AtomicU64>,
}

impl Write for Contents {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.written.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewFile {
    /// Creates the file under a temporary name beside its own.
    pub fn create(path: &Path) -> io::Result<(Self, Contents)> {
        let names = replaceable(path)?.map(|place| (temporary_name(&place), place));
        let file = match &names {
            None => OpenOptions::new().append(true).open(path)?,
            Some((temporary, _)) => File::create(temporary)?,
        };
        let written = Arc::new(AtomicU64::new(0));
        Ok((Self { names, written: written.clone() }, Contents { file, written }))
    }

    /// Flushes the file to the disk and renames it, if it has the length that was written.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some((temporary, place)) = &self.names {
            let file = File::open(temporary)?;
            file.sync_all()?;
            let (found, written) = (file.metadata()?.len(), self.written.load(Ordering::Relaxed));
            if found != written {
                let lost = format!("{written} bytes were written and {found} are there");
                return Err(io::Error::other(lost));
            }
            fs::rename(temporary, place)?;
            sync_folder_of(place)?;
        }
        self.names = None;
        Ok(())
    }
}

/// A full disk needs the space back.
impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.names {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The file that a new one may take the place of: `path`, or what it links to, even if that is not there yet. `None` for
/// a device, a pipe or a socket: a rename would put a file where every other program expects the device.
fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    // As many links as Linux follows.
    const LINKS: usize = 40;
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => return Ok(None),
        Err(it) if it.kind() != ErrorKind::NotFound => return Err(it),
        _ => {}
    }
    let mut place = path.to_owned();
    for _ in 0..LINKS {
        let target = match fs::read_link(&place) {
            // No link, or nothing yet.
            Err(it) if matches!(it.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => break,
            target => target?,
        };
        // `/dev/stdout` of a shell's `>> FILE`: a rename would lose what FILE has.
        if place.starts_with("/proc") || place.starts_with("/dev/fd") {
            return Ok(None);
        }
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    Ok(Some(place))
}

/// A name beside `path` that no other writer uses, without the file's own, which may be as long as the system allows.
fn temporary_name(path: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".hapo-{}-{number}.tmp", std::process::id()))
}

/// Makes a rename in the folder of `path` survive a power cut.
pub fn sync_parent(path: &Path) -> Result<(), Refusal> {
    sync_folder_of(path).map_err(Refusal::io("write", path))
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let Some(parent) = parent else { return Ok(()) };
    File::open(parent)?.sync_all()
}

/// Creates a folder, whose name survives a power cut.
pub fn create_folder(path: &Path) -> Result<(), Refusal> {
    let is_new = found_at(path)?.is_none();
    fs::create_dir_all(path).map_err(Refusal::io("create", path))?;
    if is_new { sync_parent(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut all: Vec<String> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_file_is_replaced_or_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        let failed = write_atomically_with(&path, |file| {
            file.write_all(b"half").unwrap();
            Err(Refusal::io("write", &path)(std::io::Error::other("full")))
        });
        assert!(failed.unwrap_err().to_string().ends_with("a.json: full"));
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn a_file_with_fewer_bytes_than_were_written_does_not_appear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let (new, mut file) = NewFile::create(&path).unwrap();
        file.write_all(b"three").unwrap();
        let [temporary] = &names(folder.path())[..] else { panic!("one file") };
        let behind = OpenOptions::new().write(true).open(folder.path().join(temporary)).unwrap();
        behind.set_len(2).unwrap();
        let lost = new.finish().unwrap_err().to_string();
        assert_eq!(lost, "5 bytes were written and 2 are there");
        assert!(names(folder.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (at, elsewhere) = (|name: &str| folder.path().join(name), folder.path().join("other"));
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("real"), "before").unwrap();
        for (name, target) in [("one", "two"), ("two", "other/real"), ("early", "other/new")] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
        }
        for (name, file) in [("one", "real"), ("early", "new")] {
            write_atomically(&at(name), b"after").unwrap();
            assert!(fs::symlink_metadata(at(name)).unwrap().is_symlink(), "{name}");
            assert_eq!(fs::read(elsewhere.join(file)).unwrap(), b"after");
        }
        assert_eq!(names(folder.path()), ["early", "one", "other", "two"]);
        assert_eq!(names(&elsewhere), ["new", "real"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_into_and_stays_a_pipe() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let is_pipe = || fs::metadata(&pipe).unwrap().file_type().is_fifo();
        // Open for both directions: neither end waits for the other.
        let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        write_atomically(&pipe, b"text").unwrap();
        assert!(is_pipe());
        let mut text = [0; 4];
        std::io::Read::read_exact(&mut reader, &mut text).unwrap();
        assert_eq!(&text, b"text");
        assert_eq!(names(folder.path()), ["pipe"]);
    }

    #[test]
    fn a_name_may_be_as_long_as_the_system_allows() {
        let folder = tempfile::tempdir().unwrap();
        let name = "n".repeat(255);
        write_atomically(&folder.path().join(&name), b"x").unwrap();
        assert_eq!(names(folder.path()), [name]);
    }

    #[test]
    fn many_writers_of_one_file_leave_one_complete_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("a");
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                scope.spawn(move || write_atomically(path, &vec![writer; 100_000]).unwrap());
            }
        });
        let bytes = fs::read(path).unwrap();
        assert_eq!(bytes.len(), 100_000);
        assert!(bytes.iter().all(|it| *it == bytes[0]));
        assert_eq!(names(folder.path()), ["a"]);
    }
}
