"""The same YAML means the same to Envoy and to the relay: a table of scalars and kinds of fields, value by value."""

import json
import subprocess
import urllib.request

import packages
import resources
from harness import Case, PORTS, Process, eventually, get

# Plain, quoted, tagged and block scalars, as values of metadata: there nothing but YAML decides what they are.
SCALARS = r"""0 -0 5 +5 -5 010 -010 0660 08 09 0x1F 0X1f -0x10 0x 0o17 0b11 1_000 1,000 0xg 00 007 2147483647 2147483648
-2147483648 -2147483649 4294967296 9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775808
18446744073709551615 0x7fffffff 0xffffffff 0x7fffffffffffffff 0xffffffffffffffff 017777777777
1.0 1.10 -1.5 .5 5. 1e3 1E3 1e400 .inf -.inf .nan .NaN inf NaN Infinity
true True TRUE tRUE false False FALSE yes Yes YES yEs no No NO on On ON off Off OFF y Y n N t f
null Null NULL nUll ~ none 2026-01-02 2026-01-02T03:04:05Z 12:30:45 1:20 0.0.0.0 1s 50% a/b a:b = + . --5 +-5 5a
"5" '5' "true" 'null' "" "\u00e9\n" """.split() + [
    "", "a b", "5 # a comment", "!!str 5", "!!str 0660", "!!str true", "!!str ~", "!!int 5", '!!int "5"', "!!float 5", "!!float 1.5",
    '!!bool "true"', "!!null x", "!!null ''", "!!binary aGk=", "!local 5", "!local ~", "! 5", "! true", "! ~", "!ignore 5",
    "|\n  5", ">-\n  5", "|-\n  true", "|\n  a\n   b\n\n", '"a\n   b"', "[1, 010, yes, ~, , 1.0]".replace(", ,", ","),
    '{a: 1, 2: b, true: c, 010: d, ~: e, 1.5: f, !ignore z: 5, "q": 1, !local l: 1}', "{i, j: }", "&one 010", "*one",
    "{<<: {a: 1}, b: 2}", "!!map {a: 1}", "! [1]", "&many {a: [1, yes]}", f"[{', '.join(['*many'] * 150)}]",
]  # fmt: skip

# Field, and the texts that Envoy takes for it.
FIELDS = [
    ("alt_stat_name", ["1.10", "1e3", "08", "4294967295", '"5"', "! 5", "~", "''", "0xffffffff", "-.inf"]),
    ("per_connection_buffer_limit_bytes",
     ["32768", "010", "0x10", "1e3", "1.0", "08", '"5"', '"010"', '"1e3"', '"0x10"', "~", "4294967295", "0xffffffff", "+5"]),
    ("ignore_health_on_host_removal", ["yes", "on", "y", "true", "tRUE", '"true"', '"yes"', "t", '"1"', '"0"', "~", "!!str true"]),
    ("common_lb_config: {healthy_panic_threshold: {value", ["1", "1.5", "1e1", ".5", "5.", '"1.5"', "010", "0x10", "+1.5", "~"]),
    ("lb_policy", ["RING_HASH", "2", '"2"', "02", "ring_hash", "~"]),
    ("ring_hash_lb_config: {minimum_ring_size", ["1024", "01777", "1e3", "1.0", '"0x10"', "'+5'"]),
    ("cleanup_interval", ["1s", "1.5s", '"1s"', "~"]),
    ("load_assignment: {cluster_name: c, endpoints: [{priority: 0}, {priority", ["1", "01", "0x1", '"1"', "1.0"]),
    ("upstream_bind_config: {source_address: {address: 127.0.0.1, port_value", ["0", "010", "0xff"]),
    ("circuit_breakers", ["~", "{}", "{thresholds: {priority: high, max_requests: 0x10}}"]),
    ("health_checks", ["~", "[]"]),
    ("!ignore unknown", ["5", "{a: b}"]),
]  # fmt: skip

# What neither takes.
REFUSED = [
    "alt_stat_name: 5", "alt_stat_name: 0660", "alt_stat_name: true", "alt_stat_name: yes", "alt_stat_name: !!str 5",
    "per_connection_buffer_limit_bytes: 1.5", "per_connection_buffer_limit_bytes: true", "per_connection_buffer_limit_bytes: 1_000",
    'per_connection_buffer_limit_bytes: " 5"', "per_connection_buffer_limit_bytes: -1", "ignore_health_on_host_removal: 1",
    "common_lb_config: {healthy_panic_threshold: {value: .inf}}", "lb_policy: 1.0", "cleanup_interval: 1", "cleanup_interval: 1m",
    "circuit_breakers: 5", "circuit_breakers: []", "health_checks: 5", "<<: {alt_stat_name: a}", "alt_stat_name: *nowhere",
    "metadata: {filter_metadata: {t: {? [a] : b}}}",
]  # fmt: skip


def clusters():
    """Each as the lines of a cluster without its name."""
    scalars = [f"k{index:03}: {text}" for index, text in enumerate(SCALARS)]
    lines = "\n".join(scalars).replace("\n", "\n      ")
    yield f"metadata:\n  filter_metadata:\n    t:\n      {lines}"
    for field, texts in FIELDS:
        closing = "".join({"{": "}", "[": "]"}[char] for char in reversed(field) if char in "{[" and char not in "}]")
        if "endpoints" in field:
            closing = "}]}"
        for text in texts:
            yield f"{field}: {text}{closing}"


def item(name, text):
    lines = f"name: {name}\nconnect_timeout: 1s\n{text}".replace("\n", "\n    ")
    return f"  - {lines}\n"


def bootstrap(text):
    admin = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n"
    return f"{admin}node: {{id: a, cluster: b}}\nstatic_resources:\n  clusters:\n{text}"


def served(text):
    return f"type_url: {resources.CLUSTER}\nresources:\n" + text.replace("  - name:", f"  - \"@type\": {resources.CLUSTER}\n    name:")


def of_envoy(stage, text):
    (stage.directory / "envoy.yaml").write_text(bootstrap(text))
    address = stage.directory / "envoy.admin"
    command = [packages.envoy_binary(), "-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"]
    envoy = Process(stage, "envoy", [*command, "--log-level", "error", "--admin-address-path", address])

    def dump():
        assert envoy.child.poll() is None, "Envoy refused the table"
        port = address.exists() and address.read_text().rpartition(":")[2]
        return port and get(int(port), "/config_dump?resource=static_clusters")

    eventually("Envoy's dump", dump)
    return [known["cluster"] for known in json.loads(dump().body)["configs"]]


def of_relay(stage, text):
    (stage.directory / "served").mkdir()
    (stage.directory / "served" / "clusters.yaml").write_text(served(text))
    port = stage.relay([{"server_uri": "file:served"}])
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/discovery:clusters", b'{"node": {"id": "a"}}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["resources"]


def play_equal(stage):
    text = "".join(item(f"c{index:03}", text) for index, text in enumerate(clusters()))
    envoy, relay = ({known["name"]: known for known in of(stage, text)} for of in (of_envoy, of_relay))
    assert len(envoy) == len(relay) == len(list(clusters())), (len(envoy), len(relay))
    scalars = [known["c000"]["metadata"]["filter_metadata"]["t"] for known in (envoy, relay)]
    wrong = [
        f"{text!r}: Envoy has {scalars[0].get(key)!r}, the relay {scalars[1].get(key)!r}"
        for index, text in enumerate(SCALARS)
        if scalars[0].get(key := f"k{index:03}") != scalars[1].get(key)
    ]
    wrong += [
        f"{text!r}: Envoy has {envoy[name]}, the relay {relay[name]}"
        for index, text in enumerate(clusters())
        if index and envoy[name := f"c{index:03}"] != relay[name]
    ]
    assert not wrong, "\n".join(wrong)


def play_refused(stage):
    wrong = []
    (stage.directory / "served").mkdir()
    listener = {"name": "main", "address": f"127.0.0.1:{PORTS.take()}"}
    config = {"xds_servers": [{"server_uri": "file:served"}], "listeners": [listener]}
    (stage.directory / "sluice.json").write_text(json.dumps(config))
    for text in REFUSED:
        (stage.directory / "envoy.yaml").write_text(bootstrap(item("c", text)))
        (stage.directory / "served" / "clusters.yaml").write_text(served(item("c", text)))
        for name, command in (
            ("Envoy", [packages.envoy_binary(), "--mode", "validate", "--disable-hot-restart", "-c", "envoy.yaml"]),
            ("the relay", [stage.sluice, "check", "--config", "sluice.json"]),
        ):
            if subprocess.run(command, cwd=stage.directory, capture_output=True).returncode == 0:
                wrong.append(f"{name} takes {text}")
    assert not wrong, "\n".join(wrong)


CASES = [
    Case("yaml: the relay has Envoy's values", {"envoy"}, play_equal, relay_only=True),
    Case("yaml: the relay refuses what Envoy refuses", {"envoy"}, play_refused, relay_only=True),
]
