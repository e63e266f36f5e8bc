//! The numbers of a report, and how they add up.

/// Sums that reached the end of their range, counters beyond 4 billion in one report, and numbers that are
/// none. Both are counted and told, because a
/// sum is then too low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    pub saturated: u64,
    pub not_finite: u64,
}

impl Oddities {
    /// Adds to a counter. A counter that is full stays full.
    pub fn add(&mut self, sum: &mut u64, more: u64) {
        let (value, is_over) = sum.overflowing_add(more);
        self.saturated += u64::from(is_over);
        *sum = if is_over { u64::MAX } else { value };
    }
}

/// Counters of a locality or an endpoint since the report before (LRS-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub success: u64,
    pub error: u64,
    pub issued: u64,
    pub new_connections: u64,
    pub failed_connections: u64,
}

impl Counters {
    /// Requests with an end: successes and errors.
    pub fn finished(&self) -> u64 {
        self.success.saturating_add(self.error)
    }

    pub fn is_empty(&self) -> bool {
        *self == Counters::default()
    }

    /// Passes each counter to `change`.
    pub fn each(&mut self, mut change: impl FnMut(&mut u64)) {
        let Counters { success, error, issued, new_connections, failed_connections } = self;
        [success, error, issued, new_connections, failed_connections].into_iter().for_each(&mut change);
    }

    pub fn add(&mut self, more: &Counters, oddities: &mut Oddities) {
        oddities.add(&mut self.success, more.success);
        oddities.add(&mut self.error, more.error);
        oddities.add(&mut self.issued, more.issued);
        oddities.add(&mut self.new_connections, more.new_connections);
        oddities.add(&mut self.failed_connections, more.failed_connections);
    }
}

/// The state of a client at the time of its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub in_progress: u64,
    pub active_connections: u64,
}

impl Gauges {
    pub fn is_empty(&self) -> bool {
        *self == Gauges::default()
    }
}

/// The sum of a metric, and the number of requests behind the sum (LRS-6).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricSum {
    pub finished: u64,
    pub total: f64,
}

impl MetricSum {
    pub fn is_empty(&self) -> bool {
        self.finished == 0 && self.total == 0.0
    }

    /// Adds a sum. A total that is no number is left out with its requests, so that a mean stays right. A
    /// total beyond the range ends at the largest number.
    pub fn add(&mut self, more: &MetricSum, oddities: &mut Oddities) {
        if !more.total.is_finite() {
            oddities.not_finite += 1;
            return;
        }
        oddities.add(&mut self.finished, more.finished);
        let total = self.total + more.total;
        if !total.is_finite() {
            oddities.saturated += 1;
        }
        self.total = total.clamp(f64::MIN, f64::MAX);
    }
}

/// The requests of a client and a cluster that count in the judgement of a push, of each report.
const VOICE_MAX: u64 = 100;

/// The requests of a cluster's clients in an observation, for operators and for the judge of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub success: u64,
    pub error: u64,
}

impl Tally {
    pub fn requests(&self) -> u64 {
        self.success.saturating_add(self.error)
    }

    /// The share of a client in the word of all: at most [`VOICE_MAX`] requests, with the same share of
    /// errors. Else a client that tries again and again would drown out a hundred others (LRS-24).
    pub fn as_voice(self) -> Tally {
        let requests = self.requests();
        if requests <= VOICE_MAX {
            return self;
        }
        let scaled = u128::from(self.error) * u128::from(VOICE_MAX);
        let error =
            u64::try_from((scaled + u128::from(requests / 2)) / u128::from(requests)).unwrap_or_default();
        Tally { success: VOICE_MAX - error, error }
    }

    pub fn add(&mut self, success: u64, error: u64) {
        self.success = self.success.saturating_add(success);
        self.error = self.error.saturating_add(error);
    }
}

/// The clients that an open step of a plan has given the push by their seats, and all others (LRS-24). A
/// stream without a plan belongs to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Admitted,
    #[default]
    Others,
    /// Relays, which are given each push at once, and clients that a label has given the push: neither
    /// compares with the rest.
    Unjudged,
}

/// A value for each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerGroup<T> {
    pub admitted: T,
    pub others: T,
    pub unjudged: T,
}

impl<T> PerGroup<T> {
    pub fn in_group(&mut self, group: Group) -> &mut T {
        match group {
            Group::Admitted => &mut self.admitted,
            Group::Others => &mut self.others,
            Group::Unjudged => &mut self.unjudged,
        }
    }
}
