//! Kernels from sources: NVRTC, and the images it made before.
//!
//! NVRTC needs no GPU. An image is kept under the hash of its source, the options and the version of
//! NVRTC, in a file that appears completely or not at all; where the folder cannot be written, kernels are
//! compiled at every start.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::{result, sys};
use hapo_kernels::DeviceError;
use hapo_run::{create_folder, write_atomically};
use sha2::{Digest, Sha256};

use crate::sources::Source;

/// Folders, separated as in `PATH`, with CUDA libraries, searched in addition to those of the system.
pub(crate) const LIBRARIES: &str = "HAPO_CUDA_LIBRARIES";
/// Folder of compiled kernels.
const CACHE: &str = "HAPO_KERNEL_CACHE";

/// The architecture kernels are compiled for: compute capability `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// 8 for Ampere and Ada, 9 for Hopper, 10 for Blackwell.
    pub major: u32,
    /// Its second figure.
    pub minor: u32,
}

/// NVRTC.
#[derive(Clone, Debug)]
pub struct Compiler {
    version: (i32, i32),
    /// How it is called in messages.
    device: String,
}

impl Compiler {
    /// Finds NVRTC in the folders of `HAPO_CUDA_LIBRARIES` or where the system looks.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(device: &str) -> Result<Self, DeviceError> {
        load_named_libraries();
        // SAFETY: only opens and closes libraries.
        if !unsafe { sys::is_culib_present() } {
            return Err(missing(device, "libnvrtc.so, which compiles the kernels,"));
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is there, and the numbers outlive the call.
        unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }
            .result()
            .map_err(|it| failed(device, &format!("NVRTC does not say its version: {it}")))?;
        Ok(Self { version: (major, minor), device: device.to_owned() })
    }

    /// Its version, such as 12.9.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// A file of kernels as an image for GPUs of one architecture, from the folder of images where it is
    /// there.
    ///
    /// # Errors
    /// NVRTC refuses: the message holds its log.
    pub fn image(&self, source: &Source, arch: Arch) -> Result<Vec<u8>, DeviceError> {
        let program = source.program();
        let options = options(arch);
        let Some(path) = cache_folder().map(|it| it.join(self.image_name(&program, &options)))
        else {
            return self.compile(source, arch);
        };
        if let Ok(image) = std::fs::read(&path) {
            return Ok(image);
        }
        let image = self.compile(source, arch)?;
        // Without the file the next start compiles again, nothing else.
        let _ = path
            .parent()
            .map(create_folder)
            .map(|it| it.and_then(|()| write_atomically(&path, &image)));
        Ok(image)
    }

    /// Compiles a file of kernels.
    ///
    /// # Errors
    /// NVRTC refuses: the message holds its log.
    pub fn compile(&self, source: &Source, arch: Arch) -> Result<Vec<u8>, DeviceError> {
        let text = CString::new(source.program()).expect("a source has no zero byte");
        let name = CString::new(source.file).expect("a file name has no zero byte");
        let refused = |what: &str| failed(&self.device, &format!("{}: {what}", source.file));
        let program = result::create_program(&text, Some(&name))
            .map_err(|it| refused(&format!("NVRTC cannot start: {it}")))?;
        // SAFETY: the program was just made and is destroyed once, below.
        let image = unsafe {
            match result::compile_program(program, &options(arch)) {
                Ok(()) => image_of(program).map_err(|it| refused(&it.to_string())),
                Err(it) => Err(refused(&format!("{it}\n{}", log_of(program)))),
            }
        };
        // SAFETY: as above.
        let _ = unsafe { result::destroy_program(program) };
        image
    }

    fn image_name(&self, program: &str, options: &[String]) -> String {
        let mut hash = Sha256::new();
        hash.update(program);
        hash.update(options.join(" "));
        hash.update(format!("{:?}", self.version));
        format!("{}.cubin", hapo_core::hex(hash.finalize()))
    }
}

fn options(arch: Arch) -> Vec<String> {
    vec![format!("--gpu-architecture=sm_{}{}", arch.major, arch.minor), "--std=c++17".to_owned()]
}

/// # Safety
/// `program` is alive and compiled.
unsafe fn image_of(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: as above; the buffer has the size that was asked for.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &raw mut size).result()?;
        let mut image = vec![0_u8; size];
        sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast::<c_char>()).result()?;
        Ok(image)
    }
}

/// # Safety
/// `program` is alive.
unsafe fn log_of(program: sys::nvrtcProgram) -> String {
    // SAFETY: as above.
    let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = log.into_iter().map(|it| it as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::new(), |it| it.to_string_lossy().trim_end().to_owned())
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

/// Opens the libraries of the named folders once, so that they are found by their names afterwards.
pub(crate) fn load_named_libraries() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let folders = std::env::var_os(LIBRARIES).unwrap_or_default();
        for folder in std::env::split_paths(&folders) {
            // cublas needs cublasLt.
            for stem in ["libnvrtc.so", "libcublasLt.so", "libcublas.so"] {
                let Ok(entries) = std::fs::read_dir(&folder) else {
                    continue;
                };
                let mut files: Vec<PathBuf> = entries
                    .filter_map(|it| Some(it.ok()?.path()))
                    .filter(|it| is_version_of(it, stem))
                    .collect();
                files.sort();
                for file in files {
                    // SAFETY: these are NVIDIA's libraries, in a folder the user named.
                    if let Ok(library) = unsafe { libloading::Library::new(&file) } {
                        std::mem::forget(library);
                        break;
                    }
                }
            }
        }
    });
}

/// `libnvrtc.so` or `libnvrtc.so.12`, not `libnvrtc-builtins.so.12.9`.
fn is_version_of(path: &Path, stem: &str) -> bool {
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or("");
    name.strip_prefix(stem).is_some_and(|it| it.is_empty() || it.starts_with('.'))
}

/// A library that is not there.
pub(crate) fn missing(device: &str, what: &str) -> DeviceError {
    DeviceError::Gpu {
        device: device.to_owned(),
        problem: format!("{what} was not found"),
        hint: format!(
            "install CUDA 11.8 or later, or name the folders of its libraries in {LIBRARIES}; or compute on the CPU"
        ),
    }
}

/// A call that failed.
pub(crate) fn failed(device: &str, problem: &str) -> DeviceError {
    DeviceError::Gpu {
        device: device.to_owned(),
        problem: problem.to_owned(),
        hint: "compute on the CPU, or on a GPU of compute capability 8.0 or later".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_library() {
        let is = |name: &str| is_version_of(Path::new(name), "libnvrtc.so");
        assert!(is("/a/libnvrtc.so") && is("libnvrtc.so.12"));
        assert!(!is("libnvrtc-builtins.so.12.9") && !is("libnvrtc.alt.so.12"));
    }

    #[test]
    fn images_have_names_of_what_they_were_made_from() {
        let compiler = |minor| Compiler { version: (12, minor), device: "cuda:0".to_owned() };
        let hopper = options(Arch { major: 9, minor: 0 });
        let name = compiler(9).image_name("a", &hopper);
        assert_eq!(name.len(), 64 + 6);
        assert_ne!(name, compiler(8).image_name("a", &hopper));
        assert_ne!(name, compiler(9).image_name("b", &hopper));
        let ampere = options(Arch { major: 8, minor: 0 });
        assert_ne!(name, compiler(9).image_name("a", &ampere));
    }
}
