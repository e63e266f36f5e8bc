//! The memory limit of this process's control group.

use std::fs;
use std::path::{Path, PathBuf};

/// Version 1 reports a number near this for "no limit".
const UNLIMITED: u64 = 1 << 60;

/// The smallest limit of the process's control group and its ancestors, in bytes, for cgroup versions 1 and
/// 2. `None`: no limit, or no control groups.
pub fn cgroup_memory_limit() -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_limit(Path::new("/sys/fs/cgroup"), &membership)
}

/// `membership`: a line for each hierarchy, `number:controllers:path` (cgroups(7)).
fn memory_limit(mount: &Path, membership: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            limits.extend(within(mount, path, "memory.max"));
        } else if controllers.split(',').any(|name| name == "memory") {
            limits.extend(within(&mount.join("memory"), path, "memory.limit_in_bytes"));
        }
    }
    limits.into_iter().filter(|limit| *limit < UNLIMITED).min()
}

/// The limits of the group and of all its ancestors. In a container, the path may be the host's; only its
/// root exists then.
fn within(mount: &Path, path: &str, file: &str) -> Vec<u64> {
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(mount));
    let texts = groups.filter_map(|group| fs::read_to_string(group.join(file)).ok());
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        mount
    }

    #[test]
    fn version_2_the_smallest_limit_on_the_way_up_counts() {
        let files = [
            ("memory.max", "max\n"),
            ("pods/memory.max", "500\n"),
            ("pods/relay/memory.max", "1000\n"),
            ("pods/relay/inner/memory.max", "max\n"),
        ];
        let mount = tree(&files);
        let limit = |membership| memory_limit(mount.path(), membership);
        assert_eq!(limit("0::/pods/relay/inner\n"), Some(500));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("nonsense\n"), None);
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own_for_memory() {
        let mount = tree(&[("memory/memory.limit_in_bytes", "268435456\n")]);
        // The path is the host's, which the container cannot see.
        let membership = "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/docker/1\n";
        assert_eq!(memory_limit(mount.path(), membership), Some(256 << 20));
        let unlimited = tree(&[("memory/memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(memory_limit(unlimited.path(), membership), None);
    }
}
