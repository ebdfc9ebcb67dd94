//! Kernels from sources: NVRTC, and the images it made before.
//!
//! NVRTC needs no GPU. An image is kept under the hash of its source, the options and the version of NVRTC, in a file
//! that appears completely or not at all; where the folder cannot be written, kernels are compiled at every start. An
//! image that the driver refuses is compiled anew once, then as PTX, which the driver compiles itself.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hapo_kernels::DeviceError;
use hapo_run::{create_folder, write_atomically};
use sha2::{Digest, Sha256};

use crate::libraries::{FOLDERS, Nvrtc, Program};
use crate::{launch::Result, sources::Source};

const CACHE: &str = "HAPO_KERNEL_CACHE";

/// The architecture kernels are compiled for: compute capability `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// 8 for Ampere and Ada, 9 for Hopper, 10 for Blackwell.
    pub major: u32,
    pub minor: u32,
}

/// The form of a compiled source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Image,
    /// Text that the driver compiles for the GPU at hand.
    Ptx,
}

#[derive(Clone)]
pub struct Compiler {
    pub(crate) nvrtc: Arc<Nvrtc>,
    /// Major and minor, of NVRTC.
    pub version: (i32, i32),
    /// How it is called in messages.
    device: String,
}

impl Compiler {
    /// Finds NVRTC in the folders of `HAPO_CUDA_LIBRARIES` or where the system looks.
    pub fn find(device: &str) -> Result<Self> {
        let nvrtc = Nvrtc::find()
            .ok_or_else(|| missing(device, "libnvrtc.so, which compiles the kernels,"))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the numbers outlive the call.
        let status = unsafe { (nvrtc.nvrtcVersion)(&raw mut major, &raw mut minor) };
        if status != 0 {
            return Err(failed(device, &format!("NVRTC does not say its version: {status}")));
        }
        Ok(Self { nvrtc: Arc::new(nvrtc), version: (major, minor), device: device.to_owned() })
    }

    pub(crate) fn failed(&self, problem: &str) -> DeviceError {
        failed(&self.device, problem)
    }

    /// Loads a file of kernels: the image that was kept, a new one where that is not there or `load` refuses it, and
    /// PTX where it refuses the new one too.
    pub fn load<M>(
        &self,
        source: &Source,
        arch: Arch,
        mut load: impl FnMut(&[u8]) -> Result<M, String>,
    ) -> Result<M> {
        let name = image_name(&source.program(), &options(arch, Form::Image), self.version);
        let kept = cache_folder().map(|it| it.join(name));
        let made = || self.compile(source, arch, Form::Image);
        match load_kept(kept.as_deref(), made, &mut load)? {
            Ok(it) => Ok(it),
            Err(refused) => load(&self.compile(source, arch, Form::Ptx)?).map_err(|it| {
                let problem = format!("{} cannot be loaded: {refused}", source.file);
                self.failed(&format!("{problem}; as PTX: {it}"))
            }),
        }
    }

    pub fn compile(&self, source: &Source, arch: Arch, form: Form) -> Result<Vec<u8>> {
        let text = CString::new(source.program()).expect("a source has no zero byte");
        let name = CString::new(source.file).expect("a file name has no zero byte");
        let options: Vec<CString> = options(arch, form)
            .into_iter()
            .map(|it| CString::new(it).expect("an option has no zero byte"))
            .collect();
        let options: Vec<*const c_char> = options.iter().map(|it| it.as_ptr()).collect();
        let refused = |what: &str| self.failed(&format!("{}: {what}", source.file));
        let mut program: Program = std::ptr::null_mut();
        let none = std::ptr::null();
        let (size_of, get) = match form {
            Form::Image => (self.nvrtc.nvrtcGetCUBINSize, self.nvrtc.nvrtcGetCUBIN),
            Form::Ptx => (self.nvrtc.nvrtcGetPTXSize, self.nvrtc.nvrtcGetPTX),
        };
        // SAFETY: all texts outlive the calls; the program is destroyed once, below.
        unsafe {
            let (text, name) = (text.as_ptr(), name.as_ptr());
            let status =
                (self.nvrtc.nvrtcCreateProgram)(&raw mut program, text, name, 0, none, none);
            self.ok(status).map_err(|it| refused(&format!("NVRTC cannot start: {it}")))?;
            let count = options.len() as c_int;
            let status = (self.nvrtc.nvrtcCompileProgram)(program, count, options.as_ptr());
            let image = match self.ok(status) {
                Ok(()) => self.bytes_of(program, size_of, get).map_err(|it| refused(&it)),
                Err(it) => Err(refused(&format!("{it}\n{}", self.log_of(program)))),
            };
            let _ = (self.nvrtc.nvrtcDestroyProgram)(&raw mut program);
            image
        }
    }

    fn ok(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC's texts live as long as NVRTC.
        let text = unsafe { CStr::from_ptr((self.nvrtc.nvrtcGetErrorString)(status)) };
        Err(text.to_string_lossy().into_owned())
    }

    /// # Safety
    /// `program` is alive.
    unsafe fn log_of(&self, program: Program) -> String {
        let (size_of, get) = (self.nvrtc.nvrtcGetProgramLogSize, self.nvrtc.nvrtcGetProgramLog);
        // SAFETY: as above.
        let log = unsafe { self.bytes_of(program, size_of, get) }.unwrap_or_default();
        CStr::from_bytes_until_nul(&log)
            .map_or_else(|_| String::new(), |it| it.to_string_lossy().trim_end().to_owned())
    }

    /// # Safety
    /// `program` is alive; the functions say the size of a text of it and write it.
    unsafe fn bytes_of(
        &self,
        program: Program,
        size_of: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: as above; the buffer has the requested size.
        unsafe {
            self.ok(size_of(program, &raw mut size))?;
            let mut bytes = vec![0_u8; size];
            self.ok(get(program, bytes.as_mut_ptr().cast()))?;
            Ok(bytes)
        }
    }
}

fn image_name(program: &str, options: &[String], version: (i32, i32)) -> String {
    let mut hash = Sha256::new();
    hash.update(program);
    hash.update(options.join(" "));
    hash.update(format!("{version:?}"));
    format!("{}.cubin", hapo_core::hex(hash.finalize()))
}

/// Loads the image in the file `kept`, or compiles a new one and keeps it if it loads.
fn load_kept<M>(
    kept: Option<&Path>,
    made: impl FnOnce() -> Result<Vec<u8>>,
    load: &mut impl FnMut(&[u8]) -> Result<M, String>,
) -> Result<Result<M, String>> {
    // On EIO it is compiled again.
    if let Some(image) = kept.and_then(|it| std::fs::read(it).ok())
        && let Ok(it) = load(&image)
    {
        return Ok(Ok(it));
    }
    let image = made()?;
    let loaded = load(&image);
    if let (Ok(_), Some(path)) = (&loaded, kept) {
        // Without the file the next start compiles again, nothing else.
        let folder = path.parent().map(create_folder);
        let _ = folder.map(|it| it.and_then(|()| write_atomically(path, &image)));
    }
    Ok(loaded)
}

pub(crate) fn options(arch: Arch, form: Form) -> Vec<String> {
    let of = match form {
        Form::Image => "sm",
        Form::Ptx => "compute",
    };
    let arch = format!("--gpu-architecture={of}_{}{}", arch.major, arch.minor);
    vec![arch, "--std=c++17".to_owned()]
}

/// `HAPO_KERNEL_CACHE`, else `hapo/kernels` in the user's folder for caches.
fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty());
    if let Some(folder) = set(CACHE) {
        return Some(PathBuf::from(folder));
    }
    let caches = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|it| Path::new(&it).join(".cache")))?;
    Some(caches.join("hapo").join("kernels"))
}

/// A library that is not there.
pub(crate) fn missing(device: &str, what: &str) -> DeviceError {
    let hint = format!(
        "install CUDA 11.8 or later, or name the folders of its libraries in {FOLDERS}; or compute on the CPU"
    );
    DeviceError::gpu(device, format!("{what} was not found"), hint)
}

pub(crate) fn failed(device: &str, problem: &str) -> DeviceError {
    let hint = "compute on the CPU, or on a GPU of compute capability 8.0 or later";
    DeviceError::gpu(device, problem, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_names_of_what_they_were_made_from() {
        let hopper = options(Arch { major: 9, minor: 0 }, Form::Image);
        let name = image_name("a", &hopper, (12, 9));
        assert_eq!(name.len(), 64 + 6);
        assert_ne!(name, image_name("a", &hopper, (12, 8)));
        assert_ne!(name, image_name("b", &hopper, (12, 9)));
        let ampere = options(Arch { major: 8, minor: 0 }, Form::Image);
        assert_ne!(name, image_name("a", &ampere, (12, 9)));
    }

    #[test]
    fn an_image_that_is_refused_is_made_anew_once_and_kept_when_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cubin");
        std::fs::write(&path, "torn").unwrap();
        let mut seen: Vec<String> = Vec::new();
        let mut load = |image: &[u8]| {
            seen.push(String::from_utf8(image.to_vec()).unwrap());
            if image == b"new" { Ok(7) } else { Err("refused".to_owned()) }
        };
        let made = || Ok(b"new".to_vec());
        assert_eq!(load_kept(Some(&path), made, &mut load).unwrap(), Ok(7));
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        // The kept one is taken, nothing is made.
        assert_eq!(load_kept(Some(&path), || unreachable!(), &mut load).unwrap(), Ok(7));
        assert_eq!(seen, ["torn", "new", "new"]);
        // A refused image is not kept.
        let other = folder.path().join("b.cubin");
        let mut refuse = |_: &[u8]| Err::<(), _>("an older driver".to_owned());
        let loaded = load_kept(Some(&other), || Ok(b"new".to_vec()), &mut refuse).unwrap();
        assert_eq!(loaded, Err("an older driver".to_owned()));
        assert!(!other.exists());
    }
}
