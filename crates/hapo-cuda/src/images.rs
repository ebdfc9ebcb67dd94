//! Images of all kernels, made beforehand: where their file is at hand, no NVRTC is needed and none is waited for.
//!
//! The file is one zstd frame of entries: 32 bytes of a hash of source and options, the length in 8 bytes, the image.
//! An entry whose source has changed since is not found, so that a stale file does no harm.

use std::path::{Path, PathBuf};
use std::{collections::HashMap, io::Read};

use hapo_kernels::DeviceError;
use hapo_run::write_atomically;
use sha2::{Digest, Sha256};

use crate::compile::{Arch, Compiler, Form, options};
use crate::launch::Result;
use crate::sources::{Source, sources};

const FILE: &str = "HAPO_KERNEL_IMAGES";
const NAME: &str = "kernels.zst";
/// Bytes of all images; a file with more is none of ours.
const MOST: u64 = 64 << 20;

/// The architectures that have images. One of 8.0 serves all of 8.x; one of 9.0 that alone.
pub const ARCHS: [Arch; 2] = [Arch { major: 8, minor: 0 }, Arch { major: 9, minor: 0 }];

/// The kernels of a device: images that ship, and NVRTC for what has none.
pub(crate) struct Kernels {
    device: String,
    shipped: Option<Images>,
    compiler: Option<Compiler>,
}

impl Kernels {
    /// Finds the file of images; NVRTC is found when it is needed.
    pub(crate) fn find(device: &str) -> Result<Self> {
        let shipped = Images::find(device)?;
        Ok(Self { device: device.to_owned(), shipped, compiler: None })
    }

    /// Loads a file of kernels: the image that ships, or NVRTC's where there is none or `load` refuses it.
    pub(crate) fn load<M>(
        &mut self,
        source: &Source,
        arch: Arch,
        mut load: impl FnMut(&[u8]) -> Result<M, String>,
    ) -> Result<M> {
        let shipped = self.shipped.as_ref().and_then(|it| it.of(source, arch));
        if let Some(Ok(it)) = shipped.map(&mut load) {
            return Ok(it);
        }
        let compiler = match self.compiler.take() {
            Some(it) => it,
            None => Compiler::find(&self.device)?,
        };
        self.compiler.insert(compiler).load(source, arch, load)
    }

    /// NVRTC with its version and file, or that the kernels ship.
    pub(crate) fn about(&self) -> String {
        match &self.compiler {
            None => "kernels that ship".to_owned(),
            Some(it) => {
                let (major, minor) = it.version;
                format!("NVRTC {major}.{minor} at {}", it.nvrtc.path.display())
            }
        }
    }
}

struct Images(HashMap<[u8; 32], Vec<u8>>);

impl Images {
    /// Those of the file that `HAPO_KERNEL_IMAGES` names, else of `kernels.zst` beside the executable.
    ///
    /// # Errors
    /// A named file that cannot be read, or a file that is not whole.
    fn find(device: &str) -> Result<Option<Self>> {
        let named = std::env::var_os(FILE).filter(|it| !it.is_empty()).map(PathBuf::from);
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join(NAME));
        // On EIO the kernels are compiled by the machine's own NVRTC.
        let Some(path) = named.or_else(|| beside().filter(|it| it.exists())) else {
            return Ok(None);
        };
        Self::read(&path).map(Some).map_err(|it| {
            let problem = format!("{}, which holds compiled kernels: {it}", path.display());
            let hint =
                format!("install it again, or remove it and unset {FILE}: NVRTC compiles them");
            DeviceError::gpu(device, problem, hint)
        })
    }

    fn read(path: &Path) -> Result<Self, String> {
        let file = std::fs::File::open(path).map_err(|it| it.to_string())?;
        let frame = zstd::Decoder::new(file).map_err(|it| it.to_string())?;
        let mut bytes = Vec::new();
        frame.take(MOST).read_to_end(&mut bytes).map_err(|it| it.to_string())?;
        let (mut rest, mut images) = (&bytes[..], HashMap::new());
        while !rest.is_empty() {
            let (key, image, after) = entry(rest).ok_or("an entry is cut off")?;
            images.insert(key, image.to_vec());
            rest = after;
        }
        Ok(Self(images))
    }

    /// The image of a file of kernels that runs on this architecture.
    fn of(&self, source: &Source, arch: Arch) -> Option<&[u8]> {
        let arch = ARCHS.into_iter().find(|it| match it.major {
            8 => arch.major == 8,
            _ => *it == arch,
        })?;
        self.0.get(&key(source, arch)).map(Vec::as_slice)
    }
}

/// Compiles every kernel for every architecture into one file, and returns its bytes. What `changed` makes of a source is
/// taken for the source itself.
///
/// # Errors
/// A source that NVRTC refuses, or a file that cannot be written.
pub fn write_images(
    compiler: &Compiler,
    path: &Path,
    archs: &[Arch],
    changed: impl Fn(Source) -> Source,
) -> Result<usize> {
    let mut bytes = Vec::new();
    for &arch in archs {
        for source in sources() {
            let image = compiler.compile(&changed(*source), arch, Form::Image)?;
            bytes.extend(key(source, arch));
            bytes.extend((image.len() as u64).to_le_bytes());
            bytes.extend(image);
        }
    }
    let packed = zstd::encode_all(&bytes[..], 19).expect("memory takes every byte");
    write_atomically(path, &packed).map_err(|it| compiler.failed(&it.to_string()))?;
    Ok(packed.len())
}

fn key(source: &Source, arch: Arch) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(source.program());
    hash.update(options(arch, Form::Image).join(" "));
    hash.finalize().into()
}

fn entry(bytes: &[u8]) -> Option<([u8; 32], &[u8], &[u8])> {
    let (key, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (image, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    Some((*key, image, rest))
}
