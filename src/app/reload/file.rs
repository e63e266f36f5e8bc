//! The file of the configuration, as the start reads it and a reload reads it again.

use std::path::{Path, PathBuf};

use crate::config::{self, Authorization, Config, ConfigError, KeyError, Loaded, Problem};
use crate::trust::contents;

/// The longest file: a thousand times a long one.
const BYTES_MAX: u64 = 16 << 20;

/// The environment may name the collector of traces, as it does for other programs.
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The file of the process.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    hostname: String,
}

impl ConfigFile {
    /// `path` is absolute. `hostname`: see [`config::load`].
    pub fn new(path: PathBuf, hostname: String) -> ConfigFile {
        ConfigFile { path, hostname }
    }

    pub(in crate::app) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the text. A device or a pipe could keep the reload waiting.
    ///
    /// # Errors
    /// The reason in words.
    pub(super) fn read(&self) -> Result<String, String> {
        let text = contents::read_text(&self.path, BYTES_MAX);
        text.map_err(|error| format!("cannot read {}: {error}", self.path.display()))
    }

    /// Reads a text as that of the file.
    ///
    /// # Errors
    /// Every fault, one a line.
    pub(super) fn parse(&self, text: &str) -> Result<Loaded, Vec<String>> {
        let loaded = complete(config::parse_file(text, &self.path, &self.hostname), ToString::to_string)?;
        let config = with_collector(loaded.config).map_err(|fault| vec![fault])?;
        Ok(Loaded { config, ..loaded })
    }

    /// Reads the text of a caller, who may not see what this process sees: no file is opened, and no variable
    /// is read but that of the collector, which the caller is never told (REL-10).
    ///
    /// # Errors
    /// Every fault, one a line.
    pub(super) fn parse_foreign(&self, text: &str, in_force: &Authorization) -> Result<Loaded, Vec<String>> {
        let read = config::parse_foreign(text, &self.path, &self.hostname, in_force);
        let loaded = complete(read, |error| {
            let Problem::Unset { variable, .. } = &error.problem else { return error.to_string() };
            let (place, path) = (error.place, &error.path);
            format!(
                "{place}: {path}: the environment variable {variable} is not read for the text of a caller; write \
                 ${{{variable}:-DEFAULT}}, or plan the file of the process"
            )
        })?;
        let config = with_collector(loaded.config.clone()).unwrap_or(loaded.config);
        Ok(Loaded { config, ..loaded })
    }
}

fn complete(read: Result<Loaded, ConfigError>, tell: fn(&KeyError) -> String) -> Result<Loaded, Vec<String>> {
    read.map_err(|error| match error {
        ConfigError::Invalid { errors } => errors.iter().map(tell).collect(),
        error => vec![error.to_string()],
    })
}

/// The configuration with the collector that the environment names, if the configuration names none.
///
/// # Errors
/// The environment names no collector that can be used.
pub fn with_collector(config: Config) -> Result<Config, String> {
    let endpoint = std::env::var(COLLECTOR).ok().filter(|endpoint| !endpoint.is_empty());
    let (None, Some(endpoint)) = (&config.traces, endpoint) else { return Ok(config) };
    let traces = config::traces_to(&endpoint)
        .map_err(|expected| format!("{COLLECTOR}: the value cannot be used; expected {expected}"))?;
    Ok(Config { traces: Some(traces), ..config })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<String, String> {
        ConfigFile::new(path.to_owned(), "host".to_owned()).read()
    }

    #[test]
    fn rel_2_only_a_regular_text_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sluice.yaml");
        assert!(read(&path).unwrap_err().contains("No such file"), "missing");
        assert!(read(directory.path()).unwrap_err().ends_with("not a regular file"), "a directory");
        assert!(read(Path::new("/dev/zero")).unwrap_err().ends_with("not a regular file"), "a device");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path).unwrap_err().contains("UTF-8"), "garbage");
        std::fs::write(&path, "a: b\n").unwrap();
        assert_eq!(read(&path).unwrap(), "a: b\n");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(read(&path).unwrap_err().contains("longer than"), "too long");
    }
}
