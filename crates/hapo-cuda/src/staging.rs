//! Page-locked memory between the host's buffers and a GPU.
//!
//! Purpose: a copy from such memory is only begun, so a small upload does not wait for the GPU. The memory is a ring:
//! an upload takes the next bytes of it, and only when it is full does an upload wait until the copies before are done.
//! Price: uploads are copied twice. One larger than the ring goes directly, and waits.

use std::ffi::c_void;

use cudarc::driver::result as cuda;

/// Bytes of the ring: a piece of a checkpoint twice, or the tables of many steps.
pub(crate) const RING: usize = 8 << 20;

const ALIGN: usize = 256;

pub(crate) struct Staging {
    memory: *mut u8,
    used: usize,
}

// SAFETY: the memory is the process's, and a lock is around every use.
unsafe impl Send for Staging {}

impl Staging {
    /// A ring; `None` where the system does not lock that much memory.
    ///
    /// # Safety
    /// A context is current.
    pub(crate) unsafe fn new() -> Option<Self> {
        // SAFETY: as above.
        let memory = unsafe { cuda::malloc_host(RING, 0) }.ok()?;
        Some(Self { memory: memory.cast(), used: 0 })
    }

    /// Room for `bytes` bytes, at most [`RING`]; `wait` ends all copies from it and to it.
    pub(crate) fn room<E>(
        &mut self,
        bytes: usize,
        wait: impl FnOnce() -> Result<(), E>,
    ) -> Result<*mut u8, E> {
        if self.used + bytes > RING {
            wait()?;
            self.used = 0;
        }
        // SAFETY: the range is inside the ring.
        let at = unsafe { self.memory.add(self.used) };
        self.used += bytes.next_multiple_of(ALIGN);
        Ok(at)
    }

    pub(crate) fn forget(&mut self) {
        self.used = 0;
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nothing uses it any longer, and a context is current.
    pub(crate) unsafe fn free(self) {
        // SAFETY: as above.
        let _ = unsafe { cuda::free_host(self.memory.cast::<c_void>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_waits_once_and_begins_again() {
        let mut bytes = vec![0_u8; RING];
        let mut ring = Staging { memory: bytes.as_mut_ptr(), used: 0 };
        let start = bytes.as_ptr() as usize;
        let mut waits = 0;
        let mut room = |bytes| {
            let mut waited = || {
                waits += 1;
                Ok::<_, ()>(())
            };
            ring.room(bytes, &mut waited).unwrap() as usize - start
        };
        assert_eq!([room(1), room(RING - 1024), room(512)], [0, 256, RING - 768]);
        assert_eq!([room(300), room(RING)], [0, 0]);
        assert_eq!(waits, 2);
    }
}
