//! The operator's commands, carried out.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::driver::api::control::{ConfirmedDeletion, Controls, DeletionFilter};
use crate::driver::api::load::{ClassLoadStatus, LoadRow, LoadsView, RowQuery};
use crate::driver::api::proof::{
    JoinRefusal, ProofSummary, ProofView, ProveRefusal, ProveStatus, ServerProof, ServerSamples,
    SplitRefusal, SplitStatus,
};
use crate::driver::api::rollouts::{
    InitRefusal, LedgerStatus, ObeyedOrder, OrderRefusal, PlanOrder, RolloutStatus, RolloutsView,
};
use crate::driver::api::study::{LearnOrder, LearnRefusal, LearnState, StudyView};
use crate::driver::relay::handle::Relay;
use crate::driver::relay::splits;
use crate::driver::source::handle::{Command, Subscriber};
use sluice_proof::proof::{ClassKey, ProveOrder};
use sluice_xds::{Code, Status};

/// A source answers at once unless it is processing a large response. Readers of the status do not wait for
/// that.
const REFRESH_MAX: Duration = Duration::from_millis(100);

impl RolloutsView for Relay {
    fn rollouts(&self) -> Vec<Arc<RolloutStatus>> {
        self.rollouts.all(&self.shared, &self.tables)
    }

    fn command_plan(&self, order: PlanOrder) -> BoxFuture<'_, Result<ObeyedOrder, OrderRefusal>> {
        async move {
            let PlanOrder { plan, command, condemn, is_here } = order;
            let plans = self.shared.plans.all();
            let handle = plans.iter().find(|handle| *handle.plan().name == *plan);
            let handle = handle.ok_or(OrderRefusal::NoSuchPlan)?;
            // The others have to hear of an order for all (LDG-5).
            let ledger = self.rollouts.ledger().filter(|_| !is_here && handle.plan().enforces());
            if let Some(why) = ledger.and_then(|ledger| ledger.unwritten()) {
                return Err(OrderRefusal::Unwritten(why));
            }
            let reply = handle.command(command, condemn, is_here).await;
            // A plan that ended meanwhile is one that the configuration does not have.
            reply.map_err(|_| OrderRefusal::NoSuchPlan)?.map_err(OrderRefusal::Refused)?;
            let unwritten = match ledger {
                Some(ledger) => ledger.written(&plan).await,
                None => None,
            };
            let after = self.rollouts().into_iter().find(|status| *status.plan.name == *plan);
            Ok(ObeyedOrder { after: after.ok_or(OrderRefusal::NoSuchPlan)?, unwritten })
        }
        .boxed()
    }

    fn ledger(&self) -> Option<LedgerStatus> {
        self.rollouts.ledger().map(|ledger| ledger.status())
    }

    fn init_ledger(&self) -> BoxFuture<'_, Result<(), InitRefusal>> {
        async {
            let ledger = self.rollouts.ledger().ok_or(InitRefusal::NoLedger)?;
            ledger.init().await.map_err(InitRefusal::Away)
        }
        .boxed()
    }
}

impl LoadsView for Relay {
    fn loads(&self) -> Vec<ClassLoadStatus> {
        self.loads.all().iter().map(|load| load.status(&self.shared.clock)).collect()
    }

    fn load_rows(&self, number: u64, query: &RowQuery<'_>) -> Vec<LoadRow> {
        let load = self.loads.all().into_iter().find(|load| load.facts.number == number);
        load.map(|load| load.rows(query, &self.shared.clock)).unwrap_or_default()
    }
}

impl ProofView for Relay {
    fn proofs(&self) -> BoxFuture<'_, Vec<ServerProof>> {
        self.proofs.all().boxed()
    }

    fn proof_summaries(&self) -> Vec<ProofSummary> {
        self.proofs.summaries()
    }

    fn prove(&self, order: ProveOrder) -> BoxFuture<'_, Result<u64, ProveRefusal>> {
        self.proofs.prove(order).boxed()
    }

    fn prove_state(&self, order: u64) -> BoxFuture<'_, Option<ProveStatus>> {
        self.proofs.prove_state(order).boxed()
    }

    fn samples(&self, class: ClassKey) -> BoxFuture<'_, Vec<ServerSamples>> {
        self.proofs.samples(class).boxed()
    }

    fn splits(&self) -> Vec<SplitStatus> {
        splits::all(&self.shared.durable.splits)
    }

    fn split_class(&self, class: &str, by: Vec<Box<str>>) -> Result<(), SplitRefusal> {
        splits::split(self, class, by)
    }

    fn join_classes(&self, classes: &[String]) -> Result<Vec<Arc<str>>, JoinRefusal> {
        splits::join(self, classes)
    }
}

impl StudyView for Relay {
    fn learn(&self, order: LearnOrder) -> Result<u64, LearnRefusal> {
        self.studies.begin(order, &self.shared, &self.tables)
    }

    fn learn_state(&self, order: u64) -> Option<LearnState> {
        self.studies.state(order)
    }
}

impl Controls for Relay {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        async move {
            let shown: Vec<_> = self.tables.sources.all().iter().map(|source| source.show()).collect();
            // A source that ends meanwhile has nothing to show.
            let all = async {
                for shown in shown {
                    let _ = shown.await;
                }
            };
            let _ = timeout(REFRESH_MAX, all).await;
        }
        .boxed()
    }

    fn confirm_deletions(&self, filter: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>> {
        async move {
            let type_name: Option<Arc<str>> = filter.type_name.as_deref().map(Arc::from);
            self.refresh().await;
            let mut questions = Vec::new();
            for source in self.tables.sources.all() {
                let status = source.status();
                if filter.concerns(&status) {
                    let (done, removed) = oneshot::channel();
                    let type_name = type_name.clone();
                    source.send(Command::ConfirmDeletions { type_name, done }).await;
                    questions.push((status, removed));
                }
            }
            let mut confirmed = Vec::new();
            for (source, removed) in questions {
                match removed.await {
                    Ok(removed) if removed > 0 => confirmed.push(ConfirmedDeletion { source, removed }),
                    // Meanwhile the server has restored the resources, or the deletion is done, or the source
                    // has ended.
                    Ok(_) | Err(_) => {}
                }
            }
            confirmed
        }
        .boxed()
    }

    fn first_answers_per_second(&self) -> u32 {
        self.shared.settings().limits.first_answers_per_second
    }

    fn end_stream(&self, id: u64) -> bool {
        let stream = self.stream(id);
        if let Some(stream) = &stream {
            stream.end(Status::new(Code::Unavailable, "an operator ended the stream"));
        }
        stream.is_some()
    }
}
