"""Resources as proto3 JSON, for the control plane and for a directory of files.

Fields without an argument have the same value in every case. A `source` is a ConfigSource: Envoy's source of the
referenced resources (`ADS`, or a result of `source()`).
"""

PREFIX = "type.googleapis.com/"
LISTENER = PREFIX + "envoy.config.listener.v3.Listener"
ROUTES = PREFIX + "envoy.config.route.v3.RouteConfiguration"
VIRTUAL_HOST = PREFIX + "envoy.config.route.v3.VirtualHost"
CLUSTER = PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LB_ENDPOINT = PREFIX + "envoy.config.endpoint.v3.LbEndpoint"
SECRET = PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
SCOPED_ROUTES = PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
RUNTIME = PREFIX + "envoy.service.runtime.v3.Runtime"
EXTENSION = PREFIX + "envoy.config.core.v3.TypedExtensionConfig"

HTTP_MANAGER = PREFIX + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = PREFIX + "envoy.extensions.filters.http.router.v3.Router"
FAULT = PREFIX + "envoy.extensions.filters.http.fault.v3.HTTPFault"
ON_DEMAND = PREFIX + "envoy.extensions.filters.http.on_demand.v3.OnDemand"
DOWNSTREAM_TLS = PREFIX + "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

ADS = {"ads": {}, "resource_api_version": "V3"}


def source(api_type):
    """A ConfigSource that isn't ADS: a stream, or polls, per subscription. The clusters are those of the bootstrap."""
    api = {"api_type": api_type, "transport_api_version": "V3"}
    if api_type == "REST":
        api |= {"cluster_names": ["xds-rest"], "refresh_delay": "0.2s", "request_timeout": "2s"}
    else:
        api |= {"grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]}
    return {"api_config_source": api, "resource_api_version": "V3"}


def name_of(config):
    """The name in the resource itself."""
    return config.get("name") or config["cluster_name"]


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def http_filters(on_demand=None):
    """The router, after the filter that lets requests wait for resources on demand."""
    filters = [{"name": "router", "typed_config": {"@type": ROUTER}}]
    if on_demand is not None:
        filters.insert(0, {"name": "on-demand", "typed_config": {"@type": ON_DEMAND, **on_demand}})
    return filters


def manager(routes, source, on_demand=None):
    rds = {"route_config_name": routes, "config_source": source}
    filters = http_filters(on_demand)
    return {"@type": HTTP_MANAGER, "stat_prefix": routes, "rds": rds, "http_filters": filters}


def scoped_manager(source):
    """The header x-scope chooses the routes, by SRDS; a fault filter comes by ECDS."""
    key = [{"header_value_extractor": {"name": "x-scope", "element_separator": ",", "index": 0}}]
    scopes = {"name": "scopes", "scope_key_builder": {"fragments": key}, "rds_config_source": ADS}
    scopes["scoped_rds"] = {"scoped_rds_config_source": source}
    fault = {"name": "fault", "config_discovery": {"config_source": source, "type_urls": [FAULT]}}
    filters = [fault, *http_filters()]
    return {"@type": HTTP_MANAGER, "stat_prefix": "scoped", "scoped_routes": scopes, "http_filters": filters}


def scope(name, routes):
    """Requests of a scope take these routes."""
    key = {"fragments": [{"string_key": name}]}
    return {"@type": SCOPED_ROUTES, "name": name, "route_configuration_name": routes, "key": key}


def fault(name, status):
    """Requests with a header x-fault get this status."""
    abort = {"http_status": status, "percentage": {"numerator": 100}}
    config = {"@type": FAULT, "headers": [{"name": "x-fault", "present_match": True}], "abort": abort}
    return {"@type": EXTENSION, "name": name, "typed_config": config}


def listener(name, port, source=ADS, routes=None, on_demand=None, tls=None, manage=None):
    """An HTTP listener with routes from RDS; with `tls`, a ConfigSource for the secret `tls-<name>`."""
    chain = {"filters": [{"name": "http", "typed_config": manage or manager(routes or name, source, on_demand)}]}
    if tls:
        secrets = [{"name": f"tls-{name}", "sds_config": tls}]
        config = {"@type": DOWNSTREAM_TLS, "common_tls_context": {"tls_certificate_sds_secret_configs": secrets}}
        chain["transport_socket"] = {"name": "tls", "typed_config": config}
    return {"@type": LISTENER, "name": name, "address": address(port), "filter_chains": [chain]}


def api_listener(name, routes, source=ADS):
    """The listener of the gRPC target xds:///<name>."""
    return {"@type": LISTENER, "name": name, "api_listener": {"api_listener": manager(routes, source)}}


def virtual_host(name, domains, action):
    return {"name": name, "domains": domains, "routes": [{"match": {"prefix": ""}, "route": action}]}


def routes(name, cluster):
    """Everything goes to one cluster."""
    hosts = [virtual_host("all", ["*"], {"cluster": cluster})]
    return {"@type": ROUTES, "name": name, "virtual_hosts": hosts}


def cluster(name, source=ADS, eds=None, **more):
    """An EDS cluster; `eds` is the name of its endpoints, if not its own. gRPC takes no source but ADS."""
    eds = {"eds_config": source, **({"service_name": eds} if eds else {})}
    return {"@type": CLUSTER, "name": name, "type": "EDS", "eds_cluster_config": eds, "connect_timeout": "2s", **more}


def static_cluster(name, port, **more):
    endpoints = {"cluster_name": name, "endpoints": [{"lb_endpoints": [lb_endpoint(port)]}]}
    return {"@type": CLUSTER, "name": name, "type": "STATIC", "load_assignment": endpoints, **more}


def lb_endpoint(port):
    return {"endpoint": {"address": address(port)}}


def endpoints(name, *ports, **more):
    """One locality, with a weight, as gRPC wants it."""
    here = {"locality": {"region": "here"}, "load_balancing_weight": 1, **more}
    if ports:
        here["lb_endpoints"] = [lb_endpoint(port) for port in ports]
    return {"@type": ENDPOINTS, "cluster_name": name, "endpoints": [here]}


def secret(name, certificate):
    """A certificate with its key, in PEM."""
    chain, key = certificate.chain, certificate.key
    pair = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    return {"@type": SECRET, "name": name, "tls_certificate": pair}


def runtime(name, **values):
    return {"@type": RUNTIME, "name": name, "layer": values}
