//! `file:` servers over real directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice::client::{FileError, FileEvent, FileHandle, FileServer, FileSettings};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::peer::soon;

/// Clusters by their names, in JSON.
fn clusters(names: &[&str]) -> String {
    let resources: Vec<_> = names
        .iter()
        .map(|name| {
            format!(r#"{{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "{name}"}}"#)
        })
        .collect();
    format!(r#"{{"resources": [{}]}}"#, resources.join(","))
}

struct Watched {
    directory: TempDir,
    events: mpsc::Receiver<FileEvent>,
    _handle: FileHandle,
}

impl Watched {
    async fn new(files: &[(&str, &str)]) -> Watched {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Watched::over(directory).await
    }

    /// Never polls: the source notices only changes that the kernel reports.
    async fn over(directory: TempDir) -> Watched {
        let settings = FileSettings { poll_interval: Duration::from_secs(3600), ..quick() };
        let (events_tx, events) = mpsc::channel(16);
        let handle = FileServer::watch(directory.path(), settings, events_tx).await.unwrap();
        Watched { directory, events, _handle: handle }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn save(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Replaces a file by an atomic rename.
    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path(".new"), text).unwrap();
        fs::rename(self.path(".new"), self.path(name)).unwrap();
    }

    async fn event_text(&mut self) -> String {
        event_text(&mut self.events).await
    }
}

fn quick() -> FileSettings {
    FileSettings { quiet: Duration::from_millis(50), ..FileSettings::default() }
}

/// The next event as text: the names by type, or the bad file and the reason.
async fn event_text(events: &mut mpsc::Receiver<FileEvent>) -> String {
    match soon(events.recv()).await.unwrap() {
        FileEvent::State(state, _) => {
            let types = state.iter().map(|(type_url, resources)| {
                let names: Vec<_> = resources.iter().map(|resource| resource.name.as_str()).collect();
                format!("{}: {}", type_url.short(), names.join(" "))
            });
            types.collect::<Vec<_>>().join("; ")
        }
        FileEvent::Bad { path, reason } => {
            format!("bad {}: {reason}", path.file_name().unwrap().to_str().unwrap())
        }
    }
}

async fn refused(path: &Path) -> String {
    let (events, _receiver) = mpsc::channel(1);
    let error: FileError = FileServer::watch(path, quick(), events).await.unwrap_err();
    error.to_string()
}

#[tokio::test]
async fn fil_3_a_directory_without_files_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(refused(&missing).await.contains("missing"));
    fs::write(directory.path().join("README.md"), "").unwrap();
    fs::write(directory.path().join(".hidden.json"), clusters(&["a"])).unwrap();
    let error = refused(directory.path()).await;
    assert!(error.contains(directory.path().to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn fil_4_the_extension_tells_the_format_and_files_of_a_type_are_one() {
    let yaml = "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: b\n";
    let listener =
        r#"{"resources": [{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l"}]}"#;
    let mut watched = Watched::new(&[
        ("1.json", &clusters(&["c", "a"])),
        ("2.yaml", yaml),
        ("3.json", listener),
        ("README.txt", "not ours"),
        (".4.json", "not ours either"),
    ])
    .await;
    assert_eq!(watched.event_text().await, "Cluster: a b c; Listener: l");
}

/// Thousands of clusters take some milliseconds, on any machine.
#[tokio::test]
async fn obs_2_a_state_has_the_time_of_reading_and_decoding() {
    let names: Vec<_> = (0..5000).map(|n| format!("cluster-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let before = tokio::time::Instant::now();
    let mut watched = Watched::new(&[("many.json", &clusters(&names))]).await;
    let event = soon(watched.events.recv()).await.unwrap();
    let FileEvent::State(state, arrival) = event else { panic!("{event:?}") };
    assert_eq!(state[0].1.len(), 5000);
    assert!(arrival.at > before && arrival.at + arrival.decoding <= tokio::time::Instant::now());
    assert!(arrival.decoding > Duration::from_millis(1), "{arrival:?}");
}

/// A `DiscoveryResponse` with one cluster, in binary.
fn binary(name: &str) -> Vec<u8> {
    let field =
        |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let type_url = field(1, b"type.googleapis.com/envoy.config.cluster.v3.Cluster");
    field(2, &[type_url, field(2, &field(1, name.as_bytes()))].concat())
}

#[tokio::test]
async fn fil_4_every_format_is_read_whatever_the_case_of_its_extension() {
    let directory = tempfile::tempdir().unwrap();
    let delimited = [vec![u8::try_from(binary("b").len()).unwrap()], binary("b")].concat();
    let text = "resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: 'c' } }";
    fs::write(directory.path().join("a.pb"), binary("a")).unwrap();
    fs::write(directory.path().join("b.pb_length_delimited"), &delimited).unwrap();
    fs::write(directory.path().join("c.pb_text"), text).unwrap();
    fs::write(directory.path().join("d.JSON"), clusters(&["d"])).unwrap();
    let mut watched = Watched::over(directory).await;
    assert_eq!(watched.event_text().await, "Cluster: a b c d");
    fs::write(watched.path(".new"), [delimited.clone(), delimited].concat()).unwrap();
    fs::rename(watched.path(".new"), watched.path("b.pb_length_delimited")).unwrap();
    let bad = watched.event_text().await;
    assert!(bad.starts_with("bad b.pb_length_delimited: ") && bad.contains("one DiscoveryResponse"), "{bad}");
    watched.replace("c.pb_text", "resources {\n [type.googleapis.com/acme.T] { name: 'c' } }");
    let bad = watched.event_text().await;
    assert!(bad.starts_with("bad c.pb_text: line 2: ") && bad.contains("acme.T"), "{bad}");
}

#[tokio::test]
async fn fil_5_a_file_may_be_one_list_collection() {
    let collection = r#"{"name": "xdstp:///envoy.config.cluster.v3.ClusterCollection/all", "resource": {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.ClusterCollection",
        "entries": {"inline_entry": {"name": "c", "resource":
            {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c"}}}}}"#;
    let mut watched = Watched::new(&[("a.json", &clusters(&["a"])), ("b.json", collection)]).await;
    let text = watched.event_text().await;
    assert_eq!(text, "Cluster: a; ClusterCollection: xdstp:///envoy.config.cluster.v3.ClusterCollection/all");
}

#[tokio::test]
async fn fil_1_a_rename_is_taken_at_once_and_equal_content_is_no_news() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.json"), clusters(&["a"])).unwrap();
    let hour = Duration::from_secs(3600);
    let settings = FileSettings { quiet: hour, poll_interval: hour, ..FileSettings::default() };
    let (events_tx, mut events) = mpsc::channel(16);
    let _handle = FileServer::watch(directory.path(), settings, events_tx).await.unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a");
    for (text, change) in [(clusters(&["a"]), None), (clusters(&["b"]), Some("Cluster: b"))] {
        fs::write(directory.path().join(".new"), text).unwrap();
        fs::rename(directory.path().join(".new"), directory.path().join("a.json")).unwrap();
        if let Some(change) = change {
            assert_eq!(event_text(&mut events).await, change);
        }
    }
}

#[tokio::test]
async fn fil_8_a_save_in_place_is_taken() {
    let mut watched = Watched::new(&[("a.json", &clusters(&["a"]))]).await;
    assert_eq!(watched.event_text().await, "Cluster: a");
    watched.save("a.json", &clusters(&["a", "b"]));
    assert_eq!(watched.event_text().await, "Cluster: a b");
    watched.save("new.json", &clusters(&["c"]));
    assert_eq!(watched.event_text().await, "Cluster: a b c");
    fs::remove_file(watched.path("a.json")).unwrap();
    assert_eq!(watched.event_text().await, "Cluster: c");
    fs::rename(watched.path("new.json"), watched.path("newer.json")).unwrap();
    watched.replace("more.json", &clusters(&["d"]));
    assert_eq!(watched.event_text().await, "Cluster: c d");
}

#[tokio::test]
async fn fil_7_a_bad_file_is_told_once_and_what_was_good_stays() {
    let mut watched = Watched::new(&[("a.json", &clusters(&["a"])), ("b.json", &clusters(&["b"]))]).await;
    assert_eq!(watched.event_text().await, "Cluster: a b");
    watched.replace("a.json", "{\n\"resources\": [,]}");
    let bad = watched.event_text().await;
    assert!(bad.starts_with("bad a.json: ") && bad.contains("line 2"), "{bad}");
    // The bad file is reported already: the next event is about another file.
    watched.replace("a.json", "{\n\"resources\": [,]}");
    watched.replace("b.json", "{}}");
    assert!(watched.event_text().await.starts_with("bad b.json: "));
    watched.replace("b.json", &clusters(&["b2"]));
    watched.replace("a.json", &clusters(&["a2"]));
    assert_eq!(watched.event_text().await, "Cluster: a2 b2");
}

#[tokio::test]
async fn a_name_in_two_files_is_told_with_both() {
    let mut watched = Watched::new(&[("a.json", &clusters(&["x"]))]).await;
    assert_eq!(watched.event_text().await, "Cluster: x");
    watched.replace("b.json", &clusters(&["y", "x"]));
    let bad = watched.event_text().await;
    assert!(
        bad.starts_with(r#"bad b.json: the Cluster "x" is already in"#) && bad.contains("a.json"),
        "{bad}"
    );
    fs::remove_file(watched.path("a.json")).unwrap();
    assert_eq!(watched.event_text().await, "Cluster: x y");
}

#[tokio::test]
async fn fil_2_a_kubernetes_volume_changes_in_one_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let generation = |name: &str, files: &[(&str, &str)]| {
        fs::create_dir(path(name)).unwrap();
        for (file, cluster) in files {
            fs::write(path(name).join(file), clusters(&[cluster])).unwrap();
        }
        symlink(name, path("..data_tmp")).unwrap();
        fs::rename(path("..data_tmp"), path("..data")).unwrap();
    };
    generation("..1", &[("a.json", "a1"), ("b.json", "b1")]);
    for file in ["a.json", "b.json"] {
        symlink(Path::new("..data").join(file), path(file)).unwrap();
    }
    let hour = Duration::from_secs(3600);
    let settings = FileSettings { quiet: hour, poll_interval: hour, ..FileSettings::default() };
    let (events_tx, mut events) = mpsc::channel(16);
    let _handle = FileServer::watch(directory.path(), settings, events_tx).await.unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a1 b1");
    generation("..2", &[("a.json", "a2"), ("b.json", "b2")]);
    assert_eq!(event_text(&mut events).await, "Cluster: a2 b2");
    // A key that left the volume: the symlink is dangling.
    generation("..3", &[("b.json", "b3")]);
    assert_eq!(event_text(&mut events).await, "Cluster: b3");
}

/// A directory with `a.json`, a link to a file of another volume, and `b.json`; watched by looking.
async fn over_a_volume() -> (TempDir, TempDir, mpsc::Receiver<FileEvent>, FileHandle) {
    let volume = tempfile::tempdir().unwrap();
    fs::create_dir(volume.path().join("mounted")).unwrap();
    fs::write(volume.path().join("mounted/a.json"), clusters(&["a"])).unwrap();
    let directory = tempfile::tempdir().unwrap();
    symlink(volume.path().join("mounted/a.json"), directory.path().join("a.json")).unwrap();
    fs::write(directory.path().join("b.json"), clusters(&["b"])).unwrap();
    let (events_tx, mut events) = mpsc::channel(16);
    let settings = FileSettings { poll_interval: Duration::from_millis(20), ..quick() };
    let handle = FileServer::watch(directory.path(), settings, events_tx).await.unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a b");
    (directory, volume, events, handle)
}

/// Only a name that the directory no longer has is a deletion.
#[tokio::test]
async fn fil_7_a_file_that_cannot_be_looked_at_is_not_deleted() {
    let (directory, volume, mut events, _handle) = over_a_volume().await;
    let (mounted, away) = (volume.path().join("mounted"), volume.path().join("away"));
    // The volume is away for a moment.
    fs::rename(&mounted, &away).unwrap();
    let bad = event_text(&mut events).await;
    assert!(bad.starts_with("bad a.json: a link to ") && bad.contains("does not exist"), "{bad}");
    // Nothing is taken meanwhile.
    fs::write(directory.path().join(".b"), clusters(&["b2"])).unwrap();
    fs::rename(directory.path().join(".b"), directory.path().join("b.json")).unwrap();
    // ENOTDIR.
    fs::write(&mounted, "").unwrap();
    let bad = event_text(&mut events).await;
    assert!(bad.starts_with("bad a.json: cannot look at the file: "), "{bad}");
    fs::remove_file(&mounted).unwrap();
    assert!(event_text(&mut events).await.starts_with("bad a.json: a link to "));
    // ELOOP.
    symlink("mounted", &mounted).unwrap();
    let bad = event_text(&mut events).await;
    assert!(bad.starts_with("bad a.json: cannot look at the file: "), "{bad}");
    fs::remove_file(&mounted).unwrap();
    fs::rename(&away, &mounted).unwrap();
    let mut text = event_text(&mut events).await;
    while text.starts_with("bad") {
        text = event_text(&mut events).await;
    }
    assert_eq!(text, "Cluster: a b2");
    fs::remove_file(directory.path().join("a.json")).unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: b2");
}

#[tokio::test]
async fn fil_7_a_file_that_cannot_be_looked_at_is_missed_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("b.json"), clusters(&["b"])).unwrap();
    symlink("nowhere", directory.path().join("a.json")).unwrap();
    let mut watched = Watched::over(directory).await;
    assert_eq!(watched.event_text().await, "bad a.json: a link to nowhere, which does not exist");
    watched.replace("nowhere", &clusters(&["a"]));
    assert_eq!(watched.event_text().await, "Cluster: a b");
}

#[tokio::test]
async fn fil_7_a_directory_in_the_place_of_a_file_deletes_nothing() {
    let (directory, _volume, mut events, _handle) = over_a_volume().await;
    fs::remove_file(directory.path().join("b.json")).unwrap();
    fs::create_dir(directory.path().join("b.json")).unwrap();
    assert_eq!(event_text(&mut events).await, "bad b.json: not a regular file any more");
    fs::remove_dir(directory.path().join("b.json")).unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a");
}

/// A file without resources and without a type does not say what it deletes.
#[tokio::test]
async fn fil_7_a_file_that_says_nothing_deletes_nothing_and_stops_no_start() {
    let nothing = r#"{"resources": []}"#;
    let mut watched = Watched::new(&[("a.json", nothing), ("b.json", &clusters(&["b"]))]).await;
    assert_eq!(watched.event_text().await, "Cluster: b");
    watched.replace("b.json", nothing);
    let bad = watched.event_text().await;
    assert_eq!(
        bad,
        "bad b.json: the file has no resources and no type_url, so it does not say what it deletes"
    );
    watched.replace("b.json", r#"{"type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster"}"#);
    assert_eq!(watched.event_text().await, "Cluster: ");
    let mut alone = Watched::new(&[("a.yaml", "resources: []\n")]).await;
    assert_eq!(alone.event_text().await, "");
    let mut empty = Watched::new(&[("a.yaml", ""), ("b.json", &clusters(&["b"]))]).await;
    assert!(empty.event_text().await.starts_with("bad a.yaml: "));
}

/// FIL-3: as at the start. The directory may be the place of a volume that is not mounted.
#[tokio::test]
async fn fil_3_an_emptied_directory_deletes_nothing() {
    let (directory, _volume, mut events, _handle) = over_a_volume().await;
    for file in ["a.json", "b.json"] {
        fs::remove_file(directory.path().join(file)).unwrap();
    }
    // The looks may have been between the removals.
    let mut bad = event_text(&mut events).await;
    if bad == "Cluster: b" {
        bad = event_text(&mut events).await;
    }
    assert!(bad.starts_with("bad ") && bad.ends_with(": the directory contains no file to serve"), "{bad}");
    fs::write(directory.path().join("c.json"), clusters(&["c"])).unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: c");
}

#[tokio::test]
async fn a_change_that_the_kernel_does_not_report_is_found_by_looking() {
    // A watch of the directory does not see writes to the target of a symlink outside the directory.
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target.json");
    fs::write(&target, clusters(&["a"])).unwrap();
    let directory = tempfile::tempdir().unwrap();
    symlink(&target, directory.path().join("a.json")).unwrap();
    let (events_tx, mut events) = mpsc::channel(16);
    let settings = FileSettings { poll_interval: Duration::from_millis(50), ..quick() };
    let _handle = FileServer::watch(directory.path(), settings, events_tx).await.unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a");
    fs::write(&target, clusters(&["b"])).unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: b");
}

#[tokio::test]
async fn a_directory_that_vanishes_takes_nothing_with_it() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("xds");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a.json"), clusters(&["a"])).unwrap();
    let (events_tx, mut events) = mpsc::channel(16);
    let settings = FileSettings { poll_interval: Duration::from_millis(50), ..quick() };
    let _handle = FileServer::watch(&path, settings, events_tx).await.unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a");
    fs::rename(&path, root.path().join("away")).unwrap();
    assert!(event_text(&mut events).await.starts_with("bad xds: cannot read the directory"));
    fs::create_dir(root.path().join("next")).unwrap();
    fs::write(root.path().join("next/a.json"), clusters(&["b"])).unwrap();
    fs::rename(root.path().join("next"), &path).unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: b");
}

/// I14: the file is valid again with the same content. The event confirms the served state.
#[tokio::test]
async fn fil_7_a_file_that_is_mended_without_news_confirms_what_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.json");
    fs::write(&file, clusters(&["a"])).unwrap();
    let (events_tx, mut events) = mpsc::channel(16);
    let settings = FileSettings { poll_interval: Duration::from_millis(50), ..quick() };
    let _handle = FileServer::watch(directory.path(), settings, events_tx).await.unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a");
    fs::write(&file, "{").unwrap();
    assert!(event_text(&mut events).await.starts_with("bad a.json"));
    fs::write(&file, clusters(&["a"])).unwrap();
    assert_eq!(event_text(&mut events).await, "Cluster: a");
}
