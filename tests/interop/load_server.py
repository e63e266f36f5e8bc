"""A reference server of load reports (LRS): it answers with a chosen wish, and sums what it is sent.

Counters are sums over all reports. Requests in progress are the last words of the streams that live: a report replaces those of
its stream and cluster as a whole, because a locality that it does not name has none (LRS-15).
"""

import collections
import threading
import time

import grpc
from envoy.service.load_stats.v3 import lrs_pb2

METHOD = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
ALL_CLUSTERS_FEATURE = "envoy.lrs.supports_send_all_clusters"
# The sums of a metric are a count, and a total under this key.
TOTAL = "total of "


class Stream:
    """One stream of a reporter, with the moment of each report."""

    def __init__(self, node):
        self.node = node
        self.reports = []
        self.in_progress = {}  # by cluster
        self.is_live = True


class LoadServer(grpc.GenericRpcHandler):
    """Every method may be called from any thread."""

    def __init__(self, seconds=1.0, clusters=None):
        self.changed = threading.Condition()
        self.wish(seconds, clusters)
        self.rows = collections.defaultdict(collections.Counter)
        self.drops = collections.Counter()
        self.streams = []

    # For tests.

    def wish(self, seconds, clusters=None):
        """What streams are answered from now on; without clusters the wish is for all."""
        with self.changed:
            self.wanted = lrs_pb2.LoadStatsResponse(clusters=clusters or [], send_all_clusters=clusters is None)
            self.wanted.load_reporting_interval.FromMilliseconds(int(seconds * 1000))
            self.changed.notify_all()

    def sums(self):
        """The sums that are not zero, by cluster, service and locality; a drop has its category in place of the locality."""
        with self.changed:
            rows = {row: {key: value for key, value in sums.items() if value} for row, sums in self.rows.items()}
            drops = {(cluster, "", category): {"dropped": count} for (cluster, category), count in self.drops.items()}
            return {row: sums for row, sums in (rows | drops).items() if sums}

    def in_progress(self):
        """The requests in progress at the streams that live, by cluster and locality."""
        with self.changed:
            sums = collections.Counter()
            for stream in self.streams:
                for cluster, localities in stream.in_progress.items() if stream.is_live else ():
                    sums.update({(cluster, zone): count for zone, count in localities.items()})
            return {row: count for row, count in sums.items() if count}

    def live(self):
        """The number of streams that live."""
        with self.changed:
            return sum(stream.is_live for stream in self.streams)

    def reports(self):
        """The number of reports so far."""
        with self.changed:
            return sum(len(stream.reports) for stream in self.streams)

    def evidence(self):
        lines = [f"sums {row}: {dict(sums)}" for row, sums in self.sums().items()]
        lines += [f"in progress: {self.in_progress()}"]
        lines += [f"stream of {stream.node.id}, live: {stream.is_live}, {len(stream.reports)} reports" for stream in self.streams]
        return "\n".join(lines)

    # For peers.

    def service(self, handler_call_details):
        if handler_call_details.method != METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=lrs_pb2.LoadStatsRequest.FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    def _serve(self, requests, _context):
        """The first message has the node (LRS-1), and is answered. A changed wish is sent at once."""
        first = next(requests, None)
        if first is None:
            return
        stream = Stream(first.node)
        with self.changed:
            self.streams.append(stream)
            self.take(stream, first)

        def read():
            try:
                for request in requests:
                    with self.changed:
                        self.take(stream, request)
            except grpc.RpcError:
                pass  # the peer went away
            with self.changed:
                stream.is_live = False
                self.changed.notify_all()

        threading.Thread(target=read, daemon=True).start()
        sent = None
        while True:
            with self.changed:
                self.changed.wait_for(lambda: not stream.is_live or sent is not self.wanted)
                if not stream.is_live:
                    return
                sent = self.wanted
            yield sent

    def take(self, stream, request):
        """Sums a report; requires the lock."""
        stream.reports.append((time.monotonic(), request))
        for stats in request.cluster_stats:
            cluster = stats.cluster_name
            stream.in_progress[cluster] = localities = {}
            categories = {drop.category: drop.dropped_count for drop in stats.dropped_requests}
            # Drops of circuit breakers have no category.
            categories[""] = stats.total_dropped_requests - sum(categories.values())
            self.drops.update({(cluster, category): count for category, count in categories.items() if count})
            for row in stats.upstream_locality_stats:
                zone = row.locality.zone
                localities[zone] = localities.get(zone, 0) + row.total_requests_in_progress
                sums = self.rows[cluster, stats.cluster_service_name, zone]
                sums["issued"] += row.total_issued_requests
                sums["success"] += row.total_successful_requests
                sums["error"] += row.total_error_requests
                for metric in row.load_metric_stats:
                    sums[metric.metric_name] += metric.num_requests_finished_with_metric
                    sums[TOTAL + metric.metric_name] += metric.total_metric_value
        self.changed.notify_all()
