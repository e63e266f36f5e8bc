//! The built binary as a process: configured, started, watched, killed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Attachment, DEADLINE, Variant, net};

pub const BINARY: &str = env!("CARGO_BIN_EXE_sluice");

/// The line of a server that is retried soon.
pub const QUICK_BACKOFF: &str = "backoff: { initial: 100ms, max: 200ms }";

/// The settings that differ between the relays of the tests; the rest of the configuration is fixed here.
pub struct Setup {
    pub upstream: Attachment,
    /// The keys of the relay's own node.
    pub node: String,
    /// `server_uri` of the one server.
    pub server: String,
    /// More lines of the server's entry, e.g. `wildcard: legacy`.
    pub server_lines: Vec<String>,
    /// The following servers of the list, with their own lines.
    pub next_servers: Vec<(String, Vec<String>)>,
    /// More top-level lines, e.g. `linger: 0s`.
    pub lines: Vec<String>,
    /// The listener is a unix socket in the relay's directory.
    pub unix: bool,
    /// More keys of the listener, e.g. `rest_hold: 1s`.
    pub listener: String,
    pub environment: Vec<(String, String)>,
    /// A command that runs the relay, e.g. in a separate namespace; the command must not fork.
    pub wrapper: Vec<String>,
    /// The configuration leaves `api_type` out, so that the relay guesses the variant.
    pub is_guessed: bool,
}

impl Setup {
    pub fn of(server: impl ToString) -> Setup {
        Setup {
            upstream: Attachment::Ads(Variant::Delta),
            node: "id: sluice-test, cluster: kit".to_owned(),
            server: server.to_string(),
            server_lines: vec!["resource_timeout: 1s".to_owned()],
            next_servers: Vec::new(),
            // For debugging of a failure: `SLUICE_TEST_LOG=sluice=trace`.
            lines: std::env::var("SLUICE_TEST_LOG")
                .map(|level| format!("log: {{ level: {level:?} }}"))
                .into_iter()
                .collect(),
            unix: false,
            listener: "v2: true".to_owned(),
            environment: Vec::new(),
            wrapper: Vec::new(),
            is_guessed: false,
        }
    }

    pub fn upstream(mut self, attachment: impl Into<Attachment>) -> Setup {
        self.upstream = attachment.into();
        self
    }

    /// Leaves `api_type` out, for aggregated servers whose variant the relay guesses.
    pub fn guessed(mut self) -> Setup {
        self.is_guessed = true;
        self
    }

    pub fn server_line(mut self, line: &str) -> Setup {
        self.server_lines.push(line.to_owned());
        self
    }

    /// Adds a server of lower priority than the servers so far, with the lines that the first server has at
    /// this moment.
    pub fn next_server(mut self, server: impl ToString) -> Setup {
        self.next_servers.push((server.to_string(), self.server_lines.clone()));
        self
    }

    /// Leaves all defaults unshortened.
    pub fn with_defaults(mut self) -> Setup {
        self.server_lines.clear();
        self
    }

    /// Replaces the default of one second, for tests in which a name must stay UNKNOWN.
    pub fn resource_timeout(mut self, seconds: u32) -> Setup {
        self.server_lines[0] = format!("resource_timeout: {seconds}s");
        self
    }

    pub fn line(mut self, line: &str) -> Setup {
        self.lines.push(line.to_owned());
        self
    }

    fn yaml(&self, listener: &str, admin: &str) -> String {
        let mut yaml = String::new();
        let _ = writeln!(yaml, "node: {{ {} }}\nxds_servers:", self.node);
        let _ = writeln!(yaml, "  - server_uri: {:?}", self.server);
        // The relay does not connect to a directory, so these keys have no meaning there.
        if self.upstream == Attachment::Rest {
            let _ = writeln!(yaml, "    refresh_delay: 20ms");
        } else if !self.server.starts_with("file:") {
            let _ = writeln!(yaml, "    channel_creds: [ {{ type: insecure }} ]");
            if !self.is_guessed {
                let _ = writeln!(yaml, "    api_type: {}", self.upstream.api_type());
            }
            for line in &self.server_lines {
                let _ = writeln!(yaml, "    {line}");
            }
        } else {
            for line in self.server_lines.iter().filter(|line| line.starts_with("mass_deletion")) {
                let _ = writeln!(yaml, "    {line}");
            }
        }
        for (server, lines) in &self.next_servers {
            let _ = writeln!(yaml, "  - server_uri: {server:?}");
            if server.starts_with("file:") {
                continue;
            }
            if self.upstream == Attachment::Rest {
                let _ = writeln!(yaml, "    refresh_delay: 20ms");
                continue;
            }
            let _ = writeln!(yaml, "    channel_creds: [ {{ type: insecure }} ]");
            let _ = writeln!(yaml, "    api_type: {}", self.upstream.api_type());
            for line in lines {
                let _ = writeln!(yaml, "    {line}");
            }
        }
        let _ = writeln!(yaml, "listeners: [ {{ name: main, address: {listener:?}, {} }} ]", self.listener);
        let _ = writeln!(yaml, "admin: {{ address: {admin:?} }}");
        for line in &self.lines {
            let _ = writeln!(yaml, "{line}");
        }
        yaml
    }
}

pub struct Relay {
    /// `127.0.0.1:PORT` or `unix:PATH`.
    pub address: String,
    pub admin: String,
    pub directory: TempDir,
    log: PathBuf,
    child: Child,
}

impl Relay {
    /// Starts a relay and waits until it is ready.
    pub async fn start(setup: Setup) -> Relay {
        let mut relay = Relay::launch(setup);
        relay.ready().await;
        relay
    }

    /// Starts a relay.
    pub fn launch(setup: Setup) -> Relay {
        let directory = tempfile::tempdir().expect("temporary directory");
        let address = if setup.unix {
            format!("unix:{}", directory.path().join("xds.sock").display())
        } else {
            format!("127.0.0.1:{}", net::free_port())
        };
        let admin = format!("127.0.0.1:{}", net::free_port());
        let config = directory.path().join("sluice.yaml");
        fs::write(&config, setup.yaml(&address, &admin)).expect("write the configuration");
        let mut words = setup.wrapper.iter().map(String::as_str).chain([BINARY, "serve", "--config"]);
        let mut command = Command::new(words.next().expect("a command"));
        command.args(words).arg(&config).envs(setup.environment);
        Relay::spawn(command, directory, address, admin)
    }

    /// Starts any command line of the binary; `address` and `admin` are its future listeners.
    pub fn spawn(mut command: Command, directory: TempDir, address: String, admin: String) -> Relay {
        let log = directory.path().join("log");
        let file = fs::File::create(&log).expect("log file");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("log file")).stderr(file);
        let child = command.spawn().expect("start the relay");
        Relay { address, admin, directory, log, child }
    }

    /// Waits until `/ready` answers 200.
    pub async fn ready(&mut self) {
        let start = Instant::now();
        loop {
            if let Ok((200, _)) = net::http_get(&self.admin, "/ready").await {
                return;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the relay ended with {status}; its log:\n{}", self.log());
            }
            assert!(start.elapsed() < DEADLINE, "the relay is not ready; its log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The whole lines so far: a line may be in the middle of its write.
    pub fn log(&self) -> String {
        let mut text = fs::read_to_string(&self.log).unwrap_or_default();
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        text
    }

    /// The lines of the log with this level.
    pub fn log_lines(&self, level: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(level)).map(str::to_owned).collect()
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        net::http_get(&self.admin, path).await.expect("the admin listener answers")
    }

    pub async fn post(&self, path: &str) -> (u16, String) {
        net::http(&self.admin, "POST", path).await.expect("the admin listener answers")
    }

    pub async fn post_body(&self, path: &str, body: &str) -> (u16, String) {
        net::http_with(&self.admin, "POST", path, body).await.expect("the admin listener answers")
    }

    pub fn sigterm(&self) {
        self.signal("TERM");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number of processes that the relay has started and that have not ended.
    pub fn children(&self) -> usize {
        let pid = self.child.id();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("/proc");
        let children = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        children.map(|of_task| of_task.split_whitespace().count()).sum()
    }

    /// Sends a signal by its name: `STOP` and `CONT` suspend and resume the process.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
        // The threads of a process stop one after the other. Until the last one has, an answer may leave.
        while name == "STOP" && !self.has_stopped() {
            std::thread::yield_now();
        }
    }

    /// Whether all threads are stopped, by their state in `/proc`.
    fn has_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the process lives");
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// The number of the process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to end.
    pub async fn exit(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(start.elapsed() < DEADLINE * 2, "the relay does not end; its log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// CPU time used so far, of all threads.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("/proc");
        // After the command's closing parenthesis: state is field 3, utime and stime are 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 =
            fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory, bytes.
    pub fn resident(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).expect("/proc");
        let pages: u64 = statm.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("statm");
        pages * 4096
    }

    /// The soft limit of open files of the process.
    pub fn file_limit(&self) -> (u64, u64) {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.child.id())).expect("/proc");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("limit");
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        (numbers.next().expect("soft"), numbers.next().expect("hard"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // The test harness shows the log beside the failure.
            #[allow(clippy::print_stderr)]
            {
                eprintln!("--- log of the relay ---\n{}", self.log());
            }
        }
    }
}

/// Runs a short command line of the binary: exit code, standard output, standard error. A process that does not end by itself,
/// such as a server that should have refused to start, has the code 124.
pub fn run(arguments: &[&str], directory: &Path) -> (i32, String, String) {
    let limit = (DEADLINE * 4).as_secs().to_string();
    let output = Command::new("timeout")
        .args([&limit, BINARY])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("run the binary");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}
