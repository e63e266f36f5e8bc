//! The API server, and the credentials of the relay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// After this time, a connect counts as failed, and the server is tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The API server of a cluster, and the way to its credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A file of `kubectl`. `None`: the service account of the relay's own Pod.
    pub kubeconfig: Option<PathBuf>,
    /// The name of a context in the file. `None`: the current context.
    pub context: Option<String>,
}

impl Access {
    /// Reads the file, as a start does.
    ///
    /// # Errors
    /// The fault of the file. No text of the file is quoted: the operator may have meant another file.
    pub fn check(&self) -> Result<(), String> {
        let Some(path) = &self.kubeconfig else { return Ok(()) };
        let file = read(path)?;
        let context = self.context.as_ref().or(file.current_context.as_ref());
        let Some(context) = context else { return Err(format!("{}: no current-context", path.display())) };
        let known = file.contexts.iter().any(|known| known.name == *context);
        if known { Ok(()) } else { Err(format!("{}: no context {context:?}", path.display())) }
    }

    /// A client with the present credentials.
    ///
    /// # Errors
    /// The credentials cannot be read, in words.
    pub(super) async fn client(&self) -> Result<Client, String> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let options =
                    KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
                let loaded = Config::from_custom_kubeconfig(read(path)?, &options).await;
                loaded.map_err(|error| format!("{}: {}", path.display(), in_words(&error)))?
            }
            None => Config::incluster().map_err(|error| format!("not in a cluster: {}", in_words(&error)))?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // The follower has delays of its own, and tells each fault.
        config.default_retry = false;
        // A kubeconfig may name a program for the token. To wait for the program takes a thread.
        let built = tokio::task::spawn_blocking(move || Client::try_from(config)).await;
        built.map_err(|error| error.to_string())?.map_err(|error| reason(&error))
    }
}

fn read(path: &Path) -> Result<Kubeconfig, String> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => format!("{}: {error}", path.display()),
        _ => format!("{}: not a kubeconfig", path.display()),
    })
}

/// The reason of a failed call.
pub(super) fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("status {}: {}", status.code, status.message),
        error => in_words(error),
    }
}

/// An error and all causes, without repetition.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
