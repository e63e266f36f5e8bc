"""The part of `check` that reads expressions. Prints faults, and at the end the numbers of passed and failed checks."""

import json
import re
from pathlib import Path

import promql_parser as promql
import yaml

OPS = Path(__file__).resolve().parent
DOCS = OPS.parent / "docs"
# Every scrape adds them.
TARGET = {"job", "instance"}
SEVERITIES = {"critical", "warning", "info"}
# Prometheus' own.
OWN = {"up": set()}
WIDTH = 24


def main():
    checks = [alerts_have_all_parts, alerts_cover_the_catalogue, alerts_are_tested, dashboards_are_sound]
    groups = {path.name: load(path)["groups"] for path in (OPS / "prometheus").glob("*.yaml")}
    recording = [rule for group in groups["recording.yaml"] for rule in group["rules"]]
    alerts = [rule for group in groups["alerts.yaml"] for rule in group["rules"]]
    failed = 0
    for check in checks:
        faults = list(check(Catalogue().with_records(recording), alerts))
        failed += bool(faults)
        print(f"{check.__name__.replace('_', ' ')}: {'FAILED' if faults else 'ok'}")
        for fault in faults:
            print(f"  {fault}")
    print(len(checks) - failed, failed)


def load(path):
    return yaml.safe_load(path.read_text())


class Catalogue:
    """The metrics of docs/metrics.md with their labels, and those that recording rules make."""

    def __init__(self):
        self.labels = dict(OWN)
        # The metrics whose row says when to wake somebody.
        self.alerting = set()
        self.faults = []
        for row in (DOCS / "metrics.md").read_text().splitlines():
            if not row.startswith("| `"):
                continue
            name, kind, _, labels, _, alert = (cell.strip() for cell in row.strip("|").split("|"))
            name, labels = name.strip("`"), set(re.findall("`(.+?)`", labels))
            if kind == "histogram":
                self.labels |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
            else:
                self.labels[name] = labels
            if alert != "-":
                self.alerting.add(name)

    def with_records(self, rules):
        for rule in rules:
            self.labels[rule["record"]] = self.of(rule["expr"], rule["record"]) - TARGET
        return self

    def of(self, expression, place):
        """The labels of the result. Collects metrics and labels that do not exist."""
        try:
            return self.result(promql.parse(expression), place)
        except ValueError as error:
            self.faults.append(f"{place}: {error}")
            return set()

    def result(self, node, place):
        match type(node).__name__:
            case "VectorSelector":
                return self.selected(node, place)
            case "MatrixSelector":
                return self.result(node.vector_selector, place)
            case "Call":
                return self.called(node, place)
            case "AggregateExpr":
                inner = self.result(node.expr, place)
                kept = set(node.modifier.labels) if node.modifier else set()
                self.need(kept, inner, place)
                return kept
            case "BinaryExpr":
                return self.joined(node, place)
            case "ParenExpr" | "SubqueryExpr" | "UnaryExpr":
                return self.result(node.expr, place)
            case "NumberLiteral" | "StringLiteral":
                return set()
        raise ValueError(f"an expression of the kind {type(node).__name__}")

    def selected(self, node, place):
        if node.name not in self.labels:
            self.faults.append(f"{place}: no metric {node.name}")
            return set()
        labels = self.labels[node.name] | TARGET
        self.need({matcher.name for matcher in node.matchers.matchers}, labels, place)
        return labels

    def called(self, node, place):
        inner = [self.result(argument, place) for argument in node.args]
        labels = set().union(*inner)
        match node.func.name:
            case "histogram_quantile":
                self.need({"le"}, labels, place)
                return labels - {"le"}
            case "absent":
                return set()
        return labels

    def joined(self, node, place):
        left, right = self.result(node.lhs, place), self.result(node.rhs, place)
        matching = node.modifier and node.modifier.matching
        if matching:
            self.need(set(matching.labels), left & right, place)
        elif left and right and left != right:
            self.faults.append(f"{place}: the sides of {node.op} have the labels {sorted(left)} and {sorted(right)}")
        return left or right

    def need(self, wanted, labels, place):
        for label in sorted(wanted - labels):
            self.faults.append(f"{place}: no label {label}; there are {', '.join(sorted(labels))}")


def alerts_have_all_parts(catalogue, alerts):
    """Metrics, labels, texts, and the section for each alert."""
    sections = failure_modes()
    for rule in alerts:
        name, notes = rule["alert"], rule["annotations"]
        labels = catalogue.of(rule["expr"], name)
        if rule["labels"].get("severity") not in SEVERITIES:
            yield f"{name}: no severity of {sorted(SEVERITIES)}"
        for part in ("summary", "description", "runbook_url"):
            if not notes.get(part):
                yield f"{name}: no {part}"
        for label in set(re.findall(r"\$labels\.(\w+)", "".join(notes.values()))) - labels:
            yield f"{name}: a text names the label {label}, which the expression has not"
        section = sections.get(notes["runbook_url"].removeprefix("docs/failure-modes.md#"))
        if section is None:
            yield f"{name}: no heading {notes['runbook_url']}"
        elif f"`{name}`" not in section:
            yield f"{name}: its section {notes['runbook_url']} does not name it"
    known = {rule["alert"] for rule in alerts}
    for alert in sorted(set(re.findall(r"`(Sluice\w+)`", "".join(sections.values()))) - known):
        yield f"docs/failure-modes.md names {alert}, which does not exist"
    yield from catalogue.faults


def failure_modes():
    """The sections of the page by the anchors of their headings, as web pages of repositories make them."""
    sections, anchor = {}, ""
    for line in (DOCS / "failure-modes.md").read_text().splitlines():
        if line.startswith("#"):
            anchor = re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        sections[anchor] = sections.get(anchor, "") + line + "\n"
    return sections


def alerts_cover_the_catalogue(catalogue, alerts):
    """A row of docs/metrics.md with an alert has a rule on its metric."""
    records = {rule["record"]: rule["expr"] for group in load(OPS / "prometheus" / "recording.yaml")["groups"] for rule in group["rules"]}
    expressions = " ".join(rule["expr"] for rule in alerts)
    # Records may build on records.
    for _ in range(3):
        expressions += " ".join(expression for name, expression in records.items() if name in expressions)
    for metric in sorted(catalogue.alerting):
        if not re.search(rf"\b{metric}(_bucket)?\b", expressions):
            yield f"docs/metrics.md wants an alert on {metric}"
    for name in sorted(set(records)):
        if not re.match(r"[a-z_]+:[a-z_]+:[a-z0-9_]+$", name):
            yield f"the name {name} has not the form LEVEL:METRIC:OPERATION"


def alerts_are_tested(_, alerts):
    """Each alert has a test of its name that fires it, and that has a series for which it is silent."""
    tests = {test["name"]: test for path in (OPS / "prometheus" / "tests").glob("*.yaml") for test in load(path)["tests"]}
    names = {rule["alert"] for rule in alerts}
    for name in sorted(names ^ set(tests)):
        yield f"{name}: an alert without a test, or a test without an alert"
    for name in sorted(names & set(tests)):
        test = tests[name]
        fired = [sample["labels"] for expected in test["promql_expr_test"] for sample in expected["exp_samples"]]
        if not any(f'alertname="{name}"' in labels for labels in fired):
            yield f"{name}: its test expects no such alert"
        series = [series["series"] for series in test["input_series"]]
        if series and not any('"quiet"' in one for one in series):
            yield f"{name}: its test has no quiet relay"


def dashboards_are_sound(catalogue, _):
    uids = set()
    for path in sorted((OPS / "grafana").glob("*.json")):
        dashboard = json.loads(path.read_text())
        for fault in dashboard_faults(catalogue, dashboard):
            yield f"{path.name}: {fault}"
        if dashboard["uid"] in uids:
            yield f"{path.name}: another dashboard has the uid {dashboard['uid']}"
        uids.add(dashboard["uid"])
    yield from catalogue.faults
    if not uids:
        yield "there are no dashboards"


def dashboard_faults(catalogue, dashboard):
    if dashboard["id"] is not None or not dashboard["uid"]:
        yield "an imported dashboard has no id, and a fixed uid"
    # They make Grafana ask questions at the import, and fail in provisioning.
    yield from (f"has {key}" for key in ("__inputs", "__requires") if key in dashboard)
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    if variables["datasource"]["type"] != "datasource":
        yield "the variable datasource has another type"
    for variable in variables.values():
        if variable["type"] == "query":
            selector = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            catalogue.need({selector[2]}, catalogue.of(filled(selector[1]), variable["name"]), variable["name"])
    panels = dashboard["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        yield "two panels have the same id"
    cells = set()
    for panel in panels:
        place, title = panel["gridPos"], panel["title"]
        covers = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if covers & cells or place["x"] + place["w"] > WIDTH:
            yield f"{title}: covers another panel, or does not fit"
        cells |= covers
        if panel["type"] in ("timeseries", "stat", "table"):
            yield from (f"{title}: {fault}" for fault in panel_faults(catalogue, panel, variables))


def panel_faults(catalogue, panel, variables):
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "no unit"
    if not panel["description"]:
        yield "no description"
    for target in [panel, *panel["targets"]]:
        if target["datasource"]["uid"] != "${datasource}":
            yield "a fixed data source"
    for target in panel["targets"]:
        expression = target["expr"]
        for name in set(re.findall(r"\$(\w+)", expression)) - set(variables) - {"__rate_interval"}:
            yield f"no variable {name}"
        # A fixed range shows nothing where the scrape interval is longer.
        if re.search(r"\brate\([^\[]*\[(?!\$__rate_interval\])", expression):
            yield "rate() without $__rate_interval"
        labels = catalogue.of(filled(expression), panel["title"])
        for label in set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) - labels:
            yield f"the legend names the label {label}, which the expression has not"


def filled(expression):
    return re.sub(r"\$(\w+)", "x", expression.replace("$__rate_interval", "5m"))


if __name__ == "__main__":
    main()
