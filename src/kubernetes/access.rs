//! The API server, and the credentials of the relay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use kube::client::AuthError;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// After this time, a connect counts as failed, and the server is tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The API server of a cluster, and the way to its credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    /// A file of `kubectl`. `None`: the service account of the relay's own Pod.
    pub kubeconfig: Option<PathBuf>,
    /// The name of a context in the file. `None`: the current context.
    pub context: Option<String>,
}

impl ClusterAccess {
    /// Reads the file, as a start does.
    ///
    /// # Errors
    /// The fault of the file. No text of the file is quoted: the operator may have meant another file.
    pub fn check(&self) -> Result<(), String> {
        let Some(path) = &self.kubeconfig else { return Ok(()) };
        let file = read(path)?;
        let context = self.context.as_ref().or(file.current_context.as_ref());
        let Some(context) = context else { return Err(format!("{}: no current-context", path.display())) };
        let context_exists = file.contexts.iter().any(|entry| entry.name == *context);
        if context_exists { Ok(()) } else { Err(format!("{}: no context {context:?}", path.display())) }
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
                let file = path.clone();
                let file = tokio::task::spawn_blocking(move || read(&file)).await;
                let file = file.map_err(|error| error.to_string())??;
                let loaded = Config::from_custom_kubeconfig(file, &options).await;
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

/// The text of an error alone. A program for credentials gets secrets, and prints some: its errors are not
/// quoted.
fn text_alone(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<AuthError>() {
        Some(AuthError::AuthExecRun { out, .. }) => {
            format!("the program for credentials failed: {}", out.status)
        }
        Some(AuthError::AuthExecParse(_)) => "the program for credentials printed something else".to_owned(),
        Some(AuthError::AuthExecStart(error)) => format!("cannot start the program for credentials: {error}"),
        Some(AuthError::AuthExec(_)) => "the program for credentials cannot be used".to_owned(),
        _ => unquoted(error),
    }
}

/// The text of an error whose own text has those of its causes, as the errors of the library do.
fn unquoted(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if inner.is::<AuthError>() {
            return "no credentials".to_owned();
        }
        cause = inner.source();
    }
    error.to_string()
}

/// An error and all causes, without repetition.
fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = text_alone(error);
    let mut cause = error.source().filter(|_| !error.is::<AuthError>());
    while let Some(error) = cause {
        let more = text_alone(error);
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        // The causes behind such an error have the output of the program.
        cause = error.source().filter(|_| !error.is::<AuthError>());
    }
    text
}
