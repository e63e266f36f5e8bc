"""`sluice schema`: an independent validator and `sluice check` agree about configurations (PKG-8, PKG-1)."""

import concurrent.futures
import copy
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import ruamel.yaml

from context import SETS, configuration

SEED = 17
# Values that people and templates put in the wrong place.
VALUES = ["", "nonsense", 0, -1, 1, 1.5, True, None, [], {}, "10s", "64KiB", "off", 10**12, "${A:-1}", "file:a", "unix:/a", ["a"], {"a": "b"}]

# The errors of `sluice check` that the schema cannot know, by their texts, each with its reason.
UNKNOWABLE = {
    r"found \"\$\{": "a variable has its value elsewhere, and may be of another type",
    r"does not apply to|nothing: `insecure`|a gRPC type; for REST|REST, for a server": "a key depends on the kind of the server, of the address or of the policy",
    r"missing; expected \[\{type: tls|how long to wait between two polls|missing; expected the (key|certificate) of|missing; with spiffe_trust_bundle_map_file": "a key is required beside another only",
    r"missing; expected a list of grants|and `deny` exclude": "one of two keys",
    r"none or several|found nothing; expected text, \{": "one of several keys: nothing is a map without keys",
    r"found a list; expected|missing; expected at least one|at least one|entries; expected|servers; expected": "the length of a list",
    r"expected (IP:port|unix: and a path|host:port|a port|an IP address|a DNS name|http://HOST|http\[s\]://host|a SPIFFE ID|a prefix with a whole|a trust domain|a host name|a header|the name of)": "the form of an address or a name",
    r"does not begin with spiffe|belongs to gRPC|is not a valid authority|percent-encoded|full message name": "the form of a name",
    r"is not supported by this version": "a type of credentials of somebody else, which is skipped before `tls` only",
    r"expected (a duration|bytes) from": "the range of a text with a unit",
    r"expected error, warn, info": "the levels of a log",
    r"no caller matches|never reached|is also|already used|is more than|longer than|shorter than|must be true|needs |not in the directory|has no effect|would leave|has another|no rule of|allows |used by|not a part of": "two keys contradict each other",
    r"a capture at the end|a brace has no partner": "the captures of a pattern",
    r"missing or empty field": "an empty text among values of any type",
}


def yaml():
    """YAML 1.2, as the relay reads it: `off` is text."""
    yaml = ruamel.yaml.YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    return yaml


def schema(context, change=lambda schema: schema):
    file = context.directory / "schema.json"
    file.write_text(json.dumps(change(json.loads(context.run("schema")))))
    return file


def validate(schema, files):
    """The files that check-jsonschema refuses, with the words."""
    call = [pathlib.Path(sys.prefix) / "bin" / "check-jsonschema", "--schemafile", schema, "--output-format", "json", "--no-cache", *files]
    done = subprocess.run(call, check=False, capture_output=True, text=True)
    assert done.returncode in (0, 1) and done.stdout, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert not told.get("parse_errors"), told["parse_errors"]
    return {error["filename"]: f"{error['path']}: {error['message']}" for error in told["errors"]}


def check(context, file):
    """None, or the errors of `sluice check`."""
    call = [context.sluice, "check", "--offline", "--config", file]
    done = subprocess.run(call, check=False, capture_output=True, text=True)
    assert done.returncode in (0, 64), done.stderr
    return None if done.returncode == 0 else [line.strip() for line in done.stderr.splitlines() if "warning:" not in line]


def valid_configurations_have_no_fault(context):
    """Every configuration of the repository: its files, the charts' renderings, and the blocks of its documents."""
    directory = context.directory / "valid"
    directory.mkdir()
    files = [*(context.root / "config").glob("*.yaml"), context.root / "deploy/debian/sluice.yaml"]
    texts = {f"chart-{name}": configuration(context.set(name)) for name in SETS}
    for page in [context.root / "README.md", *(context.root / "docs").glob("*.md")]:
        for count, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)):
            texts[f"{page.stem}-{count}"] = block
    for name, text in texts.items():
        file = directory / f"{name}.yaml"
        file.write_text(text)
        # Some blocks are parts, or belong to other programs.
        if name.startswith("chart-") or check(context, file) is None:
            files.append(file)
    assert len(files) >= len(SETS) + 10, files
    assert validate(schema(context), files) == {}


def values_of_the_chart_are_known_keys(context):
    """PKG-1: `config` of the values is a part of a configuration; the chart adds the rest."""
    directory = context.directory / "values"
    directory.mkdir()
    part = schema(context, lambda schema: {key: value for key, value in schema.items() if key != "required"})
    files = []
    for name in SETS:
        file = directory / f"{name}.json"
        file.write_text(json.dumps(context.values(name).get("config", {})))
        files.append(file)
    assert validate(part, files) == {}
    wrong = directory / "wrong.json"
    wrong.write_text('{"limits": {"conections": 1}}')
    assert "conections" in validate(part, [wrong])[str(wrong)]


def schema_agrees_with_check(context):
    """500 mutations of the example, and some of a file with a value for every key: both readers refuse the same."""
    directory = context.directory / "mutations"
    directory.mkdir()
    chance, files = random.Random(SEED), {}
    for base, count in (("config/example.yaml", 500), ("src/config/schema/visits.yaml", 200)):
        whole = yaml().load((context.root / base).read_text())
        for number in range(count):
            # The relay reads both forms. In Python, YAML takes a hundred times as long.
            form = "yaml" if number % 10 == 0 else "json"
            file = directory / f"{pathlib.Path(base).stem}-{number}.{form}"
            mutant = copy.deepcopy(whole)
            files[file] = " and ".join(mutate(mutant, chance) for _ in range(chance.choice((1, 1, 2))))
            text = io.StringIO()
            if form == "yaml":
                yaml().dump(mutant, text)
            else:
                json.dump(mutant, text)
            file.write_text(text.getvalue())
    refused = validate(schema(context), files)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checked = dict(zip(files, pool.map(lambda file: check(context, file), files)))
    faults, excused = [], {}
    for file, change in files.items():
        by_schema, by_relay = refused.get(str(file)), checked[file]
        if by_schema and by_relay is None:
            faults.append(f"{file.stem}: {change}: only the schema refuses it: {by_schema}")
        if by_relay is None or by_schema:
            continue
        for error in by_relay[1:]:
            pattern = next((pattern for pattern in UNKNOWABLE if re.search(pattern, error)), None)
            if pattern:
                excused[pattern] = excused.get(pattern, 0) + 1
            else:
                faults.append(f"{file.stem}: {change}: only the relay refuses it: {error}")
    assert not faults, "\n".join(faults)
    both = sum(1 for file in files if str(file) in refused)
    valid = sum(1 for file in files if checked[file] is None)
    assert both >= 250 and valid >= 50, f"{both} refused by both, {valid} valid"
    # Exceptions that excuse most of the errors would make the comparison worthless.
    assert sum(excused.values()) < both / 2, excused


def mutate(tree, chance):
    """Changes one place of the tree; the words for it."""
    places = list(walk(tree))
    holder, key = chance.choice(places)
    kind = chance.choice(("replace", "replace", "replace", "delete", "misspell", "add", "move", "wrap"))
    if kind == "replace":
        holder[key] = copy.deepcopy(chance.choice(VALUES))
    elif kind == "delete":
        del holder[key]
    elif kind == "misspell" and isinstance(key, str) and len(key) > 3:
        at = chance.randrange(1, len(key))
        holder[key[:at] + key[at + 1:]] = holder.pop(key)
    elif kind == "add" and isinstance(holder[key], dict):
        holder[key]["unknown_key"] = 1
    elif kind == "move":
        other, at = chance.choice(places)
        holder[key] = copy.deepcopy(other[at])
    else:
        kind = "wrap"
        holder[key] = [holder[key]]
    return f"{kind} {key}"


def walk(tree):
    """Each value's place: its holder, and its key there."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from walk(tree[key])


CHECKS = [valid_configurations_have_no_fault, values_of_the_chart_are_known_keys, schema_agrees_with_check]
