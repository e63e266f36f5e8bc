//! State in sealed memory: a file without a name, on no disk, and read-only once sealed (HND-2).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

use super::HandoverFault;

/// The state of one source. The largest seen in practice has some hundred megabytes.
pub const PART_BYTES_MAX: u64 = 4 << 30;

const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Writes piece by piece, and seals. The descriptor is closed at exec.
///
/// # Errors
/// The error of `write`, or of the kernel.
pub fn sealed(
    write: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let memory = memfd_create("sluice state", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = BufWriter::with_capacity(1 << 16, File::from(memory));
    write(&mut |piece| file.write_all(piece))?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// Reads the whole.
///
/// # Errors
/// The memory is not sealed, is too large, or is none.
pub fn read(memory: OwnedFd) -> Result<Vec<u8>, HandoverFault> {
    if !fcntl_get_seals(&memory).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(HandoverFault::Unsealed);
    }
    let file = File::from(memory);
    let length = file.metadata()?.len();
    let Some(bytes) = usize::try_from(length).ok().filter(|_| length <= PART_BYTES_MAX) else {
        return Err(HandoverFault::PartTooLong(length));
    };
    let mut content = vec![0; bytes];
    // The position is common to both processes.
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hnd_2_the_state_cannot_be_changed_once_it_is_passed() {
        let memory = sealed(|sink| {
            sink(b"one, ")?;
            sink(b"two")
        })
        .unwrap();
        let copy = File::from(memory.try_clone().unwrap());
        assert_eq!(read(memory).unwrap(), b"one, two");
        assert!(copy.write_at(b"x", 0).is_err());
        assert!(copy.set_len(1).is_err());
        assert_eq!(read(copy.into()).unwrap(), b"one, two");
    }

    #[test]
    fn hnd_2_memory_without_seals_is_refused() {
        let memory = memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(matches!(read(memory), Err(HandoverFault::Unsealed)));
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(read(file.into()), Err(HandoverFault::Unsealed)));
    }

    #[test]
    fn an_error_of_the_writer_passes_nothing() {
        assert!(sealed(|_| Err(io::Error::other("no"))).is_err());
    }
}
