//! Load reports (LRS): a scripted server beside the control plane, and a client.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use http::uri::PathAndQuery;
use http::{Request, Response};
use prost::Message;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::DEADLINE;
use super::proto::{Locality, Node};

pub const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
pub const LRS_V2: &str = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats";

/// The feature of clients that understand "all clusters".
pub const ALL: &str = "envoy.lrs.supports_send_all_clusters";

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Seconds {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct LocalityStats {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<Locality>,
    #[prost(uint64, tag = "2")]
    pub success: u64,
    #[prost(uint64, tag = "3")]
    pub in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub error: u64,
    #[prost(uint64, tag = "8")]
    pub issued: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ClusterStats {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub localities: Vec<LocalityStats>,
    #[prost(uint64, tag = "3")]
    pub dropped: u64,
    #[prost(message, optional, tag = "4")]
    pub interval: Option<Seconds>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Report {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(message, repeated, tag = "2")]
    pub clusters: Vec<ClusterStats>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Wish {
    #[prost(string, repeated, tag = "1")]
    pub clusters: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub interval: Option<Seconds>,
    #[prost(bool, tag = "3")]
    pub endpoints: bool,
    #[prost(bool, tag = "4")]
    pub all: bool,
}

impl Wish {
    /// All clusters, at this interval.
    pub fn all(seconds: i64) -> Wish {
        Wish { all: true, ..Wish::of(&[], seconds) }
    }

    pub fn of(clusters: &[&str], seconds: i64) -> Wish {
        let interval = Some(Seconds { seconds, nanos: 0 });
        Wish { clusters: super::words::strings(clusters), interval, endpoints: false, all: false }
    }
}

/// The stats of a cluster in one locality.
pub fn stats(cluster: &str, zone: &str, [success, error, in_progress]: [u64; 3]) -> ClusterStats {
    let locality = Some(Locality { region: String::new(), zone: zone.to_owned() });
    let row = LocalityStats { locality, success, in_progress, error, issued: success + error };
    ClusterStats { name: cluster.to_owned(), localities: vec![row], ..ClusterStats::default() }
}

/// A stream of the relay at the server.
pub struct ServerStream {
    /// All messages, the first included.
    pub reports: Vec<Report>,
    /// The relay has ended its side.
    pub is_finished: bool,
    answers: Option<mpsc::UnboundedSender<Result<Wish, Status>>>,
}

impl ServerStream {
    pub fn node(&self) -> Node {
        self.reports.first().and_then(|report| report.node.clone()).unwrap_or_default()
    }

    pub fn is_open(&self) -> bool {
        self.answers.is_some() && !self.is_finished
    }
}

/// The server's side.
#[derive(Default)]
pub struct LoadServer {
    state: Mutex<ServerState>,
    changed: Notify,
}

#[derive(Default)]
struct ServerState {
    /// The answer to the first message; `None`: the server is silent.
    wish: Option<Wish>,
    refuse: Option<Code>,
    streams: Vec<ServerStream>,
    refused: usize,
}

impl LoadServer {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().expect("no test panics while it holds the server")
    }

    /// Answers each new stream, and says the same on open streams.
    pub fn wish(&self, wish: Wish) {
        let mut state = self.lock();
        for answers in state.streams.iter().filter_map(|stream| stream.answers.as_ref()) {
            let _ = answers.send(Ok(wish.clone()));
        }
        state.wish = Some(wish);
    }

    /// Takes streams, and never says a word.
    pub fn mute(&self) {
        self.lock().wish = None;
    }

    pub fn refuse(&self, code: Option<Code>) {
        self.lock().refuse = code;
    }

    /// Ends all streams with a status.
    pub fn end(&self, code: Code) {
        for stream in &mut self.lock().streams {
            if let Some(answers) = stream.answers.take()
                && code != Code::Ok
            {
                let _ = answers.send(Err(Status::new(code, "ended by the test")));
            }
        }
    }

    pub fn refused(&self) -> usize {
        self.lock().refused
    }

    /// Looks at the streams so far.
    pub fn look<T>(&self, look: impl FnOnce(&[ServerStream]) -> T) -> T {
        look(&self.lock().streams)
    }

    /// Waits until a look finds something.
    pub async fn until<T>(&self, what: &str, mut find: impl FnMut(&[ServerStream]) -> Option<T>) -> T {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = self.look(&mut find) {
                    return found;
                }
                changed.await;
            }
        };
        match timeout(DEADLINE, wait).await {
            Ok(found) => found,
            Err(_) => panic!(
                "never: {what}; the reports: {:#?}",
                self.look(|streams| {
                    streams.iter().map(|stream| stream.reports.clone()).collect::<Vec<_>>()
                })
            ),
        }
    }

    /// The successes and errors of a cluster in all reports so far.
    pub fn requests(&self, cluster: &str) -> (u64, u64) {
        self.look(|streams| sum(streams, cluster))
    }

    pub(super) async fn serve(
        self: Arc<Self>,
        request: Request<tonic::body::Body>,
    ) -> Response<tonic::body::Body> {
        let refusal = self.lock().refuse;
        if let Some(code) = refusal {
            self.lock().refused += 1;
            self.changed.notify_waiters();
            return Status::new(code, "no load reports here").into_http();
        }
        let handler = tower::service_fn(move |request: tonic::Request<Streaming<Report>>| {
            let answers = self.clone().open(request.into_inner());
            async move { Ok::<_, Status>(tonic::Response::new(answers)) }
        });
        let mut grpc = tonic::server::Grpc::new(ProstCodec::<Wish, Report>::default());
        grpc.streaming(handler, request).await
    }

    fn open(
        self: Arc<Self>,
        mut reports: Streaming<Report>,
    ) -> UnboundedReceiverStream<Result<Wish, Status>> {
        let (answers, receiver) = mpsc::unbounded_channel();
        let number = {
            let mut state = self.lock();
            let answers = Some(answers);
            state.streams.push(ServerStream { reports: Vec::new(), is_finished: false, answers });
            state.streams.len() - 1
        };
        tokio::spawn(async move {
            while let Ok(Some(report)) = reports.message().await {
                let mut state = self.lock();
                let wish = state.wish.clone();
                let stream = &mut state.streams[number];
                stream.reports.push(report);
                if let (1, Some(wish), Some(answers)) = (stream.reports.len(), wish, &stream.answers) {
                    let _ = answers.send(Ok(wish));
                }
                drop(state);
                self.changed.notify_waiters();
            }
            let mut state = self.lock();
            state.streams[number].is_finished = true;
            // Says OK.
            state.streams[number].answers = None;
            drop(state);
            self.changed.notify_waiters();
        });
        UnboundedReceiverStream::new(receiver)
    }
}

/// The successes and errors of a cluster in all reports of some streams.
pub fn sum(streams: &[ServerStream], cluster: &str) -> (u64, u64) {
    let clusters = streams.iter().flat_map(|stream| &stream.reports).flat_map(|report| &report.clusters);
    let rows = clusters.filter(|stats| stats.name == cluster).flat_map(|stats| &stats.localities);
    rows.fold((0, 0), |(success, error), row| (success + row.success, error + row.error))
}

/// A client that reports as the test says.
pub struct Reporter {
    reports: Option<mpsc::UnboundedSender<Report>>,
    answers: mpsc::UnboundedReceiver<Result<Wish, Status>>,
}

impl Reporter {
    /// Opens a stream, and sends the first message with the node.
    pub async fn open(channel: &Channel, path: &'static str, node: Node) -> Reporter {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (answering, answers) = mpsc::unbounded_channel();
        let _ = sender.send(Report { node: Some(node), clusters: Vec::new() });
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.expect("ready");
        tokio::spawn(async move {
            let requests = tonic::Request::new(UnboundedReceiverStream::new(receiver));
            let codec = ProstCodec::<Report, Wish>::default();
            let opened = grpc.streaming(requests, PathAndQuery::from_static(path), codec).await;
            let mut stream = match opened {
                Ok(response) => response.into_inner(),
                Err(status) => {
                    let _ = answering.send(Err(status));
                    return;
                }
            };
            loop {
                let answer = match stream.message().await {
                    Ok(Some(wish)) => Ok(wish),
                    Ok(None) => Err(Status::ok("")),
                    Err(status) => Err(status),
                };
                let is_over = answer.is_err();
                if answering.send(answer).is_err() || is_over {
                    return;
                }
            }
        });
        Reporter { reports: Some(sender), answers }
    }

    pub fn report(&self, clusters: Vec<ClusterStats>) {
        let reports = self.reports.as_ref().expect("the stream is open");
        reports.send(Report { node: None, clusters }).expect("the stream is open");
    }

    /// The next answer.
    pub async fn wish(&mut self) -> Wish {
        match timeout(DEADLINE, self.answers.recv()).await {
            Ok(Some(Ok(wish))) => wish,
            other => panic!("an answer, not {other:?}"),
        }
    }

    /// Whether an answer has come that no call has taken.
    pub fn has_answer(&mut self) -> bool {
        !self.answers.is_empty()
    }

    /// Ends the client's side.
    pub fn finish(&mut self) {
        self.reports = None;
    }

    /// The status of the end.
    pub async fn status(&mut self) -> Status {
        loop {
            match timeout(DEADLINE, self.answers.recv()).await {
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(status))) => return status,
                other => panic!("the end, not {other:?}"),
            }
        }
    }
}
