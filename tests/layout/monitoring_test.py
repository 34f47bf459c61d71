#!/usr/bin/env python3
"""Alert rules and dashboard ask for what /metrics has: every metric and label they name is in docs/reference/metrics.md,
which is held to the table of the metrics by a test of its own.

  monitoring_test.py              names and labels, and that the dashboard is JSON that Grafana takes
  monitoring_test.py --promtool   also what Prometheus' own tool says: rules, their tests, the configuration
  monitoring_test.py --self-test  shows that this can fail

Exit 77 (skipped) with --promtool where there is none.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/sheafd.json"
PAGE = ROOT / "docs/reference/metrics.md"

# Of every scraped series, and of every series that Prometheus makes itself.
EVERYWHERE = {"instance", "job", "alertname", "severity"}
OF_PROMETHEUS = {"up": set()}
WORDS = set("""abs absent and avg bool by clamp_max clamp_min count for histogram_quantile humanize humanizeDuration
               humanizePercentage ignoring increase label_values max max_over_time min min_over_time offset on or rate sum
               time topk unless without group_left group_right""".split())


def metrics_of(page):
    """Name to labels, histograms with their series."""
    known = dict(OF_PROMETHEUS)
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| ", page, re.M):
        names = set(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            known.update({f"{name}_bucket": names | {"le"}, f"{name}_sum": names, f"{name}_count": names})
        else:
            known[name] = names
    return known


def problems_of(where, expression, known):
    """What an expression asks for that there is not."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    text = re.sub(r"\[[^\]]*\]", "", text)
    used = set()
    for name, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if name in known and label not in known[name] | EVERYWHERE:
                yield f"{where}: {name} has no label {label}"
    outside = re.sub(r"\{[^}]*\}", "", text)
    for labels in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", outside):
        used.update(re.findall(r"\w+", labels))
    outside = re.sub(r"\b(?:by|on|ignoring|without)\s*\([^)]*\)", "", outside)
    names = set(re.findall(r"(?<![\w$])[a-zA-Z_][\w:]*", outside)) - WORDS
    asked = {name for name in names if name in known}
    for name in sorted(names - asked):
        yield f"{where}: there is no metric {name}"
    labels = EVERYWHERE.union(*(known[name] for name in asked))
    for label in sorted(used - labels):
        yield f"{where}: none of its metrics has a label {label}"


def rules_of(text):
    """(where, expression, template texts): the few lines of YAML that rules are made of."""
    for alert in re.split(r"^\s*- alert: ", text, flags=re.M)[1:]:
        name = alert.split("\n", 1)[0].strip()
        expression = re.search(r"^\s*expr: (?:>-\n((?:\s{10,}.*\n)+)|(.*)\n)", alert, re.M)
        yield f"alert {name}", " ".join((expression.group(1) or expression.group(2)).split()), alert


def questions_of(dashboard):
    """(where, expression) of a dashboard."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
            yield f"variable {variable['name']}", f"sum by ({label}) ({metric})"


def check(page, rules, dashboard):
    known = metrics_of(page)
    problems = [] if len(known) > 40 else [f"docs/reference/metrics.md lists {len(known)} series only"]
    alerts = list(rules_of(rules))
    for where, expression, text in alerts:
        problems += problems_of(where, expression, known)
        for part in ("severity:", "summary:", "description:"):
            if part not in text:
                problems.append(f"{where}: has no {part[:-1]}")
    if len({where for where, _, _ in alerts}) < len(alerts):
        problems.append("two alerts have one name")
    for where, expression in questions_of(dashboard):
        problems += problems_of(where, expression, known)
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(set(ids)) < len(ids):
        problems.append("two panels have one id")
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            problems.append(f"panel {panel['title']}: is outside of the grid")
    return problems


def run_promtool():
    promtool = shutil.which("promtool")
    if not promtool:
        print("skipped: there is no promtool here; `deploy/install-packages.sh prometheus` installs it")
        return 77
    failed = False
    for words in (["check", "rules", "sheafd.rules.yml"], ["check", "config", "prometheus.yml"],
                  ["test", "rules", "sheafd.rules.test.yml"]):
        done = subprocess.run([promtool, *words], cwd=PROMETHEUS, capture_output=True, text=True)
        if done.returncode != 0:
            failed = True
            print(f"promtool {' '.join(words)}:\n{done.stdout}{done.stderr}")
    return 1 if failed else 0


def self_test():
    page, rules = PAGE.read_text(), (PROMETHEUS / "sheafd.rules.yml").read_text()
    dashboard = json.loads(DASHBOARD.read_text())
    assert not check(page, rules, dashboard)
    faults = {
        "a metric that is not there": ("sheaf_batch_running_seconds >", "sheaf_batch_walking_seconds >"),
        "a label that its metric has not": ('sheaf_verdicts_total{verdict="REJECTED"}', 'sheaf_verdicts_total{outcome="REJECTED"}'),
        "a grouping by no label": ("sum by (instance, limit)", "sum by (instance, method)"),
        "an alert without a sentence": ("          summary:", "          title:"),
    }
    missed = [name for name, (old, new) in faults.items()
              if old not in rules or not check(page, rules.replace(old, new, 1), dashboard)]
    broken = json.loads(json.dumps(dashboard).replace("sheaf_fold_duration_seconds_bucket", "sheaf_fold_seconds_bucket"))
    if not check(page, rules, broken):
        missed.append("a panel that asks for nothing")
    print(f"not caught: {missed}" if missed else f"each of {len(faults) + 1} faults is caught")
    return 1 if missed else 0


def main(argv):
    if argv[1:] == ["--self-test"]:
        return self_test()
    problems = check(PAGE.read_text(), (PROMETHEUS / "sheafd.rules.yml").read_text(), json.loads(DASHBOARD.read_text()))
    for problem in problems:
        print(problem)
    if problems:
        return 1
    return run_promtool() if argv[1:] == ["--promtool"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
