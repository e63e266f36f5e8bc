//! The name of this host.

/// The name of this host, if known.
pub fn hostname() -> String {
    first_name([
        // By uname: the file in /proc is hidden from a systemd unit with `ProcSubset=pid`.
        rustix::system::uname().nodename().to_str().ok().map(str::to_owned),
        std::env::var("HOSTNAME").ok(),
        std::fs::read_to_string("/etc/hostname").ok(),
    ])
}

fn first_name(sources: [Option<String>; 3]) -> String {
    let mut names = sources.iter().flatten().map(|name| name.trim());
    names.find(|name| !name.is_empty()).unwrap_or("unnamed").to_owned()
}

#[cfg(test)]
mod tests {
    use super::first_name;

    #[test]
    fn a_host_has_the_first_name_that_is_known() {
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(first_name([some("kernel\n"), some("shell"), some("file")]), "kernel");
        assert_eq!(first_name([None, None, some("file\n")]), "file");
        assert_eq!(first_name([some("\n"), some("shell"), None]), "shell");
        assert_eq!(first_name([None, None, None]), "unnamed");
    }
}
