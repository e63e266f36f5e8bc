//! The table of endpoints: method, path, role, parameters and summary (AUT-14). The relay's routes and the
//! commands' requests are made from it, and tests compare the documents with it.

use std::fmt;

use crate::parameters::*;

/// Endpoints that one role opens. Every endpoint is in one area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Whether the process lives. Every role opens it.
    Health,
    /// Whether the relay may get traffic. Every role opens it.
    Ready,
    Metrics,
    /// Lists of clients, sources and resources.
    View,
    /// Requests with an effect.
    Act,
}

impl Area {
    pub const ALL: [Area; 5] = [Area::Health, Area::Ready, Area::Metrics, Area::View, Area::Act];

    pub const fn name(self) -> &'static str {
        match self {
            Area::Health => "health",
            Area::Ready => "ready",
            Area::Metrics => "metrics",
            Area::View => "view",
            Area::Act => "act",
        }
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub method: &'static str,
    pub path: &'static str,
    /// The role with access to the endpoint.
    pub area: Area,
    /// The parameters, as the list of endpoints shows them.
    pub query: &'static str,
    /// The parameters of the endpoint.
    pub keys: &'static [&'static str],
    pub summary: &'static str,
}

macro_rules! endpoints {
    ($($name:ident: $method:ident $path:literal, $area:ident, $query:literal, $parameters:ident, $summary:literal;)*) => {
        /// An endpoint of the admin API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Endpoint {
            $($name),*
        }

        impl Endpoint {
            /// In the order of the list of endpoints.
            pub const ALL: &'static [Endpoint] = &[$(Endpoint::$name),*];

            pub const fn line(self) -> Line {
                match self {
                    $(Endpoint::$name => Line {
                        method: stringify!($method),
                        path: $path,
                        area: Area::$area,
                        query: $query,
                        keys: $parameters::KEYS,
                        summary: $summary,
                    },)*
                }
            }
        }
    };
}

endpoints! {
    Index: GET "/", View, "", NoParameters, "this list; for a browser, the page";
    Healthz: GET "/healthz", Health, "", NoParameters, "200 while the process lives";
    Ready: GET "/ready", Ready, "", NoParameters,
        "200 while the relay may get traffic; the state of every upstream";
    Metrics: GET "/metrics", Metrics, "", NoParameters, "OpenMetrics text";
    Overview: GET "/overview", View, "", OverviewParameters, "the whole relay; live as text/event-stream";
    Clients: GET "/clients", View,
        "?node=&q=&type=&state=&why=&server=&class=&listener=&behind_for=&sort=&after=&limit=", ClientsParameters,
        "the downstream streams";
    Client: GET "/clients/{id}", View, "?type=&names=&after=&limit=", ClientParameters, "one downstream stream";
    ClientDiff: GET "/clients/{id}/diff", View, "?to=&type=&name=&format=&any_class=", DiffParameters,
        "from what a client has to what it should have";
    ClientExplain: GET "/clients/{id}/explain", View, "?type=&name=", NameParameters,
        "why a client has its content";
    Who: GET "/who", View, "?type=&name=&version=&after=&limit=", WhoParameters,
        "the clients that have, lack or rejected a resource";
    Versions: GET "/versions", View, "?type=&name=", NameParameters,
        "the versions of a resource that clients hold, and their rejections";
    Classes: GET "/classes", View, "?q=&after=&limit=", ClassesParameters, "the node classes";
    ExplainClass: POST "/classes/explain", View, "", NoParameters, "the class of the node in the body, as JSON";
    Divergences: GET "/classes/divergences", View, "?after=&limit=", PageParameters,
        "what the control plane tells clients otherwise than their class";
    Samples: GET "/classes/{class}/samples", View, "?after=&limit=", PageParameters,
        "the latest clients that a class was compared with";
    ProveClass: POST "/classes/prove", Act, "?class=&all=&streams=&replicas=", ProveParameters,
        "asks the control plane about the clients of a class now";
    ProveProgress: GET "/classes/prove/{order}", View, "", NoParameters, "how far it is";
    LearnClasses: POST "/classes/learn", Act, "?server=&types=&for=&streams=&per_minute=&check=", LearnParameters,
        "asks a control plane as the connected clients, and finds the rules of its classes";
    LearnProgress: GET "/classes/learn/{order}", View, "", NoParameters, "how far it is, and the findings";
    Splits: GET "/classes/splits", View, "?after=&limit=", PageParameters,
        "the classes that were split beside the rules";
    SplitClass: POST "/classes/split", Act, "?class=&by=", SplitParameters,
        "gives each value of the fields a class of its own";
    JoinClass: POST "/classes/join", Act, "?class=", JoinParameters, "undoes a split";
    Load: GET "/load", View, "?cluster=&server=&class=&sort=&after=&limit=", LoadParameters,
        "the load that clients report, by cluster and locality";
    LoadClasses: GET "/load/classes", View, "?after=&limit=", PageParameters,
        "the load of each node class on its way to a control plane";
    Sources: GET "/sources", View, "?server=&type=&state=&shadows=&after=&limit=", SourcesParameters,
        "the upstream attachments";
    Resources: GET "/resources", View, "?type=&name=&state=&after=&limit=", ResourcesParameters, "what is cached";
    Resource: GET "/resources/{type}/{*name}", View, "?source=&format=", ContentParameters,
        "one resource, with its content but for secrets";
    Events: GET "/events", View, "?kind=&severity=&after=&limit=", EventsParameters,
        "what happened; live as text/event-stream";
    Tail: GET "/tail", View, "?client=&node=&type=", TailParameters, "one client's requests and responses, live";
    Changes: GET "/changes", View, "?type=&source=&after=&limit=", ChangesParameters,
        "the published changes, and the clients' answers";
    Change: GET "/changes/{id}", View, "", NoParameters, "one change";
    Rollouts: GET "/rollouts", View, "?after=&limit=", PageParameters, "the plans for pushes";
    Rollout: GET "/rollouts/{plan}", View, "", NoParameters, "one plan, with its latest push";
    Pushes: GET "/rollouts/{plan}/pushes", View, "?after=&limit=", PageParameters,
        "the pushes that a plan remembers";
    Push: GET "/rollouts/{plan}/pushes/{push}", View, "", NoParameters, "one push";
    Candidate: GET "/rollouts/{plan}/pushes/{push}/candidate", View, "?after=&limit=", PageParameters,
        "the resources of the push under way, with their content but for secrets";
    Ledger: GET "/ledger", View, "", NoParameters, "the ledger that replicas share";
    InitLedger: POST "/ledger/init", Act, "", NoParameters,
        "believes the ledger as it is now, although it has lost its data";
    Refused: GET "/refused", View, "?after=&limit=", PageParameters,
        "clients for whose node class there was no room";
    Drain: GET "/drain", View, "", NoParameters, "an operator's drain, or none";
    BeginDrain: POST "/drain", Act, "?over=&after=&dry_run=", DrainParameters,
        "takes the relay out of service, and lets its clients go over a time";
    EndDrain: DELETE "/drain", Act, "", NoParameters, "takes the relay into service again";
    Upgrade: POST "/upgrade", Act, "?now=&dry_run=&binary=", UpgradeParameters,
        "starts a new process that takes over sockets and state; this one drains";
    Config: GET "/config", View, "?generation=&against=", ConfigParameters,
        "the configuration in force without credentials, and those before; a difference";
    Reload: POST "/reload", Act, "?dry_run=&yes=", ReloadParameters, "takes the configuration file again";
    Rollback: POST "/rollback", Act, "?to=&dry_run=&yes=", RollbackParameters,
        "takes an earlier configuration again";
    EndStream: POST "/clients/{id}/end", Act, "", NoParameters, "ends one stream";
    Log: POST "/log", Act, "?level=&for=", LogParameters, "other log directives for a time";
    ConfirmDeletions: POST "/confirm_deletions", Act, "?server=&type=", DeletionsParameters,
        "confirms mass deletions that are held back";
    CommandPlan: POST "/rollouts/{plan}/{command}", Act,
        "?push=&step=&all=&class=&condemn=&to=&until=&for=&here=&reason=&as=", PlanParameters,
        "pause, resume, promote, abort, bar, pin, unpin or rollback: a push of a plan";
    Freeze: POST "/freeze", Act, "?for=&here=&reason=&as=", FreezeParameters, "begins no push for a time";
    Unfreeze: POST "/unfreeze", Act, "?here=&reason=&as=", UnpinParameters, "lets pushes begin again";
    ClientStatus: POST "/v3/discovery:client_status", View, "", NoParameters, "client status (CSDS) in JSON";
    FetchClientStatus: POST "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus", View, "",
        NoParameters, "client status, by gRPC";
    StreamClientStatus: POST "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus", View, "",
        NoParameters, "client status, by gRPC";
    Page: GET "/ui", View, "", NoParameters, "the page";
    PageRoot: GET "/ui/", View, "", NoParameters, "the page";
    PageBelow: GET "/ui/{*page}", View, "", NoParameters, "the page";
    PageAsset: GET "/ui/assets/{build}/{name}", View, "", NoParameters, "its sheet and scripts";
}

impl Endpoint {
    pub const fn path(self) -> &'static str {
        self.line().path
    }

    /// The path with these values in the place of its variables, in order. The values are percent-encoded
    /// already.
    pub fn path_of(self, values: &[&str]) -> String {
        let mut values = values.iter();
        let segment = |segment: &'static str| match segment.starts_with('{') {
            true => values.next().copied().unwrap_or(segment),
            false => segment,
        };
        self.path().split('/').map(segment).collect::<Vec<_>>().join("/")
    }

    /// Whether a request is for the endpoint. A variable of the path stands for any text.
    pub fn matches(self, method: &str, path: &str) -> bool {
        let mut segments = path.split('/');
        for part in self.path().split('/') {
            match segments.next() {
                Some(_) if part.starts_with("{*") => return self.line().method == method,
                Some(segment) if segment == part || (part.starts_with('{') && !segment.is_empty()) => {}
                _ => return false,
            }
        }
        segments.next().is_none() && self.line().method == method
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.line().method, self.line().path)
    }
}

/// The list of endpoints, for people.
pub fn index() -> String {
    let line = |endpoint: &Endpoint| {
        let Line { area, query, summary, .. } = endpoint.line();
        format!("{:<24} {:<8} {query:<29} {summary}\n", endpoint.to_string(), area.name())
    };
    format!("sluice admin: path, role, parameters\n{}", Endpoint::ALL.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parameter that the list of endpoints does not show: a flag of `sluice status --check`.
    const UNLISTED: (Endpoint, &str) = (Endpoint::Overview, "counted");

    #[test]
    fn the_list_shows_the_parameters_that_an_endpoint_takes() {
        for endpoint in Endpoint::ALL {
            let Line { query, keys, .. } = endpoint.line();
            let shown = query.trim_start_matches('?').split('&').map(|pair| pair.trim_end_matches('='));
            let mut shown: Vec<_> = shown.filter(|key| !key.is_empty()).collect();
            let mut taken: Vec<_> =
                keys.iter().copied().filter(|key| (*endpoint, *key) != UNLISTED).collect();
            shown.sort_unstable();
            taken.sort_unstable();
            assert_eq!(shown, taken, "{endpoint}");
        }
    }

    #[test]
    fn a_path_has_its_values_and_is_its_own() {
        assert_eq!(Endpoint::Push.path_of(&["a%2Fb", "41"]), "/rollouts/a%2Fb/pushes/41");
        assert_eq!(Endpoint::Clients.path_of(&[]), "/clients");
        assert!(Endpoint::Push.matches("GET", "/rollouts/PLAN/pushes/N"));
        assert!(Endpoint::Resource.matches("GET", "/resources/TYPE/a/b"));
        assert!(!Endpoint::Resource.matches("GET", "/resources/TYPE"));
        assert!(!Endpoint::Push.matches("GET", "/rollouts/PLAN/pushes"));
        assert!(!Endpoint::Pushes.matches("GET", "/rollouts/PLAN/pushes/N"));
        assert!(!Endpoint::Drain.matches("PUT", "/drain"));
    }
}
