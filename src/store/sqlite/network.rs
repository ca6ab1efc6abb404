//! File systems on which SQLite's locks or shared memory do not hold.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// Their magic numbers, from linux/magic.h; libc names only some of them.
const NETWORKED: [(i64, &str); 8] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x6573_5546, "FUSE"),
    (0x7461_636f, "OCFS2"),
];

/// Refuses a directory that is on one of them.
pub(super) fn refuse(root: &Path) -> Result<()> {
    match kind(root) {
        None => Ok(()),
        Some(name) => Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "{} is on a {name} file system, where SQLite's locks are not safe",
                root.display()
            ),
        )
        .hint("point --store at a local disk")),
    }
}

/// Returns the name of the file system that a directory is on, if other machines may share it.
pub(super) fn kind(root: &Path) -> Option<&'static str> {
    shared(nix::sys::statfs::statfs(root).ok()?.filesystem_type().0)
}

/// Returns the name of a file system that other machines may share.
fn shared(magic: i64) -> Option<&'static str> {
    let known = NETWORKED.iter().find(|(known, _)| *known == magic)?;
    Some(known.1)
}

#[cfg(test)]
mod tests {
    use nix::sys::statfs;

    use super::*;

    #[test]
    fn what_other_machines_may_share_is_known_and_local_disks_are_not_taken_for_it() {
        assert_eq!(shared(statfs::NFS_SUPER_MAGIC.0), Some("NFS"));
        assert_eq!(shared(statfs::SMB_SUPER_MAGIC.0), Some("SMB"));
        assert_eq!(shared(statfs::FUSE_SUPER_MAGIC.0), Some("FUSE"));
        for local in [
            statfs::EXT4_SUPER_MAGIC,
            statfs::XFS_SUPER_MAGIC,
            statfs::BTRFS_SUPER_MAGIC,
            statfs::TMPFS_MAGIC,
            statfs::OVERLAYFS_SUPER_MAGIC,
        ] {
            assert_eq!(shared(local.0), None);
        }
        assert_eq!(kind(Path::new("/proc")), None);
    }
}
